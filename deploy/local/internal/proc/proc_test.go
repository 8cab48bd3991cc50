package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const grace = 30 * time.Second

func table(t *testing.T) Table {
	t.Helper()
	dir := t.TempDir()
	return Table{Dir: dir, Mark: dir}
}

// start runs a shell script under the name "program" and ends it with the test.
func start(t *testing.T, table Table, script string) Record {
	t.Helper()
	err := table.Start(Spec{
		Name: "program", Argv: []string{"/bin/sh", "-c", script},
		Log: filepath.Join(table.Dir, "log"), Identity: "id",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { KillAll(t.Context(), table.Marked()) })
	r, running := table.Running("program")
	if !running {
		t.Fatal("program does not run after its start")
	}
	return r
}

func TestStopEndsWhatWasStarted(t *testing.T) {
	tb := table(t)
	r := start(t, tb, "exec sleep 1000")
	if r.Identity != "id" || r.PID <= 0 {
		t.Errorf("record %+v", r)
	}
	if err := tb.Stop(t.Context(), grace, "program", "never started"); err != nil {
		t.Fatal(err)
	}
	if _, running := tb.Running("program"); running || alive(r) {
		t.Error("program runs after its stop")
	}
}

func TestStopKillsWhatIgnoresTheSignal(t *testing.T) {
	tb := table(t)
	r := start(t, tb, "trap '' TERM; while :; do sleep 1000; done")
	if err := tb.Stop(t.Context(), time.Millisecond, "program"); err != nil {
		t.Fatal(err)
	}
	if alive(r) {
		t.Error("program runs after its stop")
	}
}

func TestReusedProcessIDIsNotOurs(t *testing.T) {
	tb := table(t)
	r := start(t, tb, "exec sleep 1000")
	r.Started++ // as if another program had got the id later
	if err := tb.write(r); err != nil {
		t.Fatal(err)
	}
	if _, running := tb.Running("program"); running {
		t.Error("a program with another start time is taken for ours")
	}
	if err := tb.Stop(t.Context(), grace, "program"); err != nil {
		t.Fatal(err)
	}
	r.Started--
	if !alive(r) {
		t.Error("Stop ended a program that is not the recorded one")
	}
}

func TestUnreadableRecordIsNotRunning(t *testing.T) {
	tb := table(t)
	if err := os.WriteFile(tb.path("program"), []byte(`{"pid":`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, running := tb.Running("program"); running {
		t.Error("a cut record counts as running")
	}
}

func TestMarkFindsChildrenWithoutRecord(t *testing.T) {
	tb := table(t)
	r := start(t, tb, "exec sleep 1000")
	if err := os.Remove(tb.path("program")); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(tb.Marked(), r.PID) {
		t.Fatalf("marked %v, want %d among them", tb.Marked(), r.PID)
	}
	if other := (Table{Mark: tb.Mark + "x"}).Marked(); len(other) > 0 {
		t.Errorf("another mark finds %v", other)
	}
	if left := KillAll(t.Context(), tb.Marked()); len(left) > 0 || alive(r) {
		t.Errorf("left %v", left)
	}
}

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"
	tests := map[string]struct {
		content string
		want    stat
		ok      bool
	}{
		"sleeping":             {"7 (sleep) S" + rest, stat{Started: 4242}, true},
		"zombie":               {"7 (sleep) Z" + rest, stat{Started: 4242, Ended: true}, true},
		"name with brackets":   {"7 (a) b (c) Z) R" + rest, stat{Started: 4242}, true},
		"empty":                {"", stat{}, false},
		"cut short":            {"7 (sleep) S 1 2 3", stat{}, false},
		"start time no number": {"7 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x", stat{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(test.content)
			if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != test.ok {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (sleep) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20")
	f.Add("7 (a) b) Z")
	f.Fuzz(func(t *testing.T, content string) {
		if got, err := parseStat(content); err != nil && got != (stat{}) {
			t.Errorf("error %v with %+v", err, got)
		}
	})
}
