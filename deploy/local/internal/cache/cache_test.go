package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func program() Artefact {
	return Artefact{Name: "program", Key: "k1", Files: []string{"a", "b"}}
}

// fill returns a maker that writes the artefact's files and counts its calls.
func fill(calls *atomic.Int32) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		calls.Add(1)
		for _, name := range program().Files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o755); err != nil {
				return err
			}
		}
		return nil
	}
}

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ensure(t *testing.T, s *Store, a Artefact, make func(context.Context, string) error) string {
	t.Helper()
	dir, err := s.Ensure(t.Context(), a, make)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEnsureMakesOnceAndFindsAfterwards(t *testing.T) {
	s := open(t)
	var calls atomic.Int32
	first := ensure(t, s, program(), fill(&calls))
	second := ensure(t, s, program(), fill(&calls))
	if first != second || calls.Load() != 1 {
		t.Errorf("made %d times in %s and %s, want once in one folder", calls.Load(), first, second)
	}
}

func TestDamageIsMadeAnew(t *testing.T) {
	damages := map[string]func(dir string) error{
		"changed content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("evil"), 0o755) },
		"truncated":       func(dir string) error { return os.Truncate(filepath.Join(dir, "b"), 3) },
		"file gone":       func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"sums gone":       func(dir string) error { return os.Remove(filepath.Join(dir, sumsName)) },
		"sums cut short":  func(dir string) error { return os.Truncate(filepath.Join(dir, sumsName), 70) },
		"folder emptied":  func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			var calls atomic.Int32
			dir := ensure(t, s, program(), fill(&calls))
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Find(program()); !errors.Is(err, ErrMissing) {
				t.Errorf("Find after damage = %v, want ErrMissing", err)
			}
			ensure(t, s, program(), fill(&calls))
			if calls.Load() != 2 {
				t.Errorf("made %d times, want 2", calls.Load())
			}
		})
	}
}

func TestFailedOrIncompleteMakeLeavesNothing(t *testing.T) {
	errBoom := errors.New("boom")
	makers := map[string]func(context.Context, string) error{
		"error after a file": func(_ context.Context, dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "a"), nil, 0o755), errBoom)
		},
		"file missing": func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, "a"), nil, 0o755)
		},
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if _, err := s.Ensure(t.Context(), program(), make); err == nil {
				t.Fatal("no error")
			}
			entries, err := os.ReadDir(s.Path("artefacts", program().Name))
			if err != nil || len(entries) > 0 {
				t.Errorf("left %v, %v; want nothing", entries, err)
			}
		})
	}
}

func TestHalfMadeFolderOfACrashIsReplaced(t *testing.T) {
	s := open(t)
	half := s.Path("artefacts", program().Name, ".making")
	if err := os.MkdirAll(filepath.Join(half, "junk"), 0o755); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	dir := ensure(t, s, program(), fill(&calls))
	if _, err := os.Stat(filepath.Join(dir, "junk")); err == nil {
		t.Error("junk of the crash is part of the artefact")
	}
}

// Each Store has file descriptors of its own, so they exclude each other as processes do.
func TestConcurrentEnsureMakesOnce(t *testing.T) {
	s := open(t)
	var calls atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			other, err := Open(s.root, func(string) {})
			if err == nil {
				_, err = other.Ensure(t.Context(), program(), fill(&calls))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if calls.Load() != 1 {
		t.Errorf("made %d times, want 1", calls.Load())
	}
}

func TestLockEndsWithTheContext(t *testing.T) {
	s := open(t)
	told := ""
	s.waiting = func(name string) { told = name }
	release, err := s.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Lock(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("second lock: %v, want context.Canceled", err)
	}
	if told != "x" {
		t.Errorf("told that %q is waited for, want x", told)
	}
	release()
	release, err = s.Lock(ctx, "x")
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	release()
}

func TestOldKeysAreForgotten(t *testing.T) {
	s := open(t)
	var calls atomic.Int32
	for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
		ensure(t, s, Artefact{Name: "program", Key: key, Files: program().Files}, fill(&calls))
	}
	entries, err := os.ReadDir(s.Path("artefacts", "program"))
	if err != nil || len(entries) != keep {
		t.Errorf("kept %d keys, %v; want %d", len(entries), err, keep)
	}
}

func TestOldTemporaryFilesAreSwept(t *testing.T) {
	s := open(t)
	old := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{"old", "new"} {
		if err := os.Mkdir(s.Path("tmp", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(s.Path("tmp", "old"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.root, func(string) {}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.Path("tmp"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "new" {
		t.Errorf("left %v, %v; want new alone", entries, err)
	}
}

func TestLinkFollowsTheNewTarget(t *testing.T) {
	s := open(t)
	for _, target := range []string{"/one", "/two", "/two"} {
		link, err := s.Link("name", target)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.Readlink(link)
		if diff := cmp.Diff(target, got); diff != "" || err != nil {
			t.Errorf("link (-want +got):\n%s%v", diff, err)
		}
	}
}
