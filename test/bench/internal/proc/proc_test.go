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
