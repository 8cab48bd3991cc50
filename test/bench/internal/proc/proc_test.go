package proc

import (
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	const line = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 100 1 1"
	got, err := parseCPU(line)
	if err != nil || got != 2*time.Second {
		t.Errorf("parseCPU = %v, %v; want 2s", got, err)
	}
	for _, bad := range []string{"", "42", "42 (a) S 1", "42 (a) S 1 2 3 4 5 6 7 8 9 10 x y 12 13"} {
		if got, err := parseCPU(bad); err == nil {
			t.Errorf("parseCPU(%q) = %v, want an error", bad, got)
		}
	}
}

func TestParseMemory(t *testing.T) {
	now, peak, err := parseMemory("Name:\ta b\nVmHWM:\t    30 kB\nVmRSS:\t    20 kB\n")
	if err != nil || now != 20<<10 || peak != 30<<10 {
		t.Errorf("parseMemory = %d, %d, %v; want 20 and 30 kB", now, peak, err)
	}
	for _, bad := range []string{"", "VmRSS: 1 kB", "VmRSS: x kB\nVmHWM: 1 kB", "VmRSS: 1 MB\nVmHWM: 1 MB"} {
		if now, peak, err := parseMemory(bad); err == nil {
			t.Errorf("parseMemory(%q) = %d, %d, want an error", bad, now, peak)
		}
	}
}
