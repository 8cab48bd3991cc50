package progress

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run does one step that takes the given virtual time and returns what was printed.
func run(t *testing.T, usual, takes time.Duration, result error) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		err := New(&out).Step(t.Context(), "building x", usual, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, takes)
			defer cancel()
			<-ctx.Done()
			return result
		})
		if !errors.Is(err, result) {
			t.Errorf("error %v, want %v", err, result)
		}
	})
	return out.String()
}

func TestStep(t *testing.T) {
	tests := map[string]struct {
		usual, takes time.Duration
		result       error
		want         string
	}{
		"short":  {0, time.Second, nil, "building x ...\nbuilding x: done in 1s\n"},
		"failed": {15 * time.Second, time.Second, errors.New("e"), "building x (usually about 15 s) ...\nbuilding x: failed after 1s\n"},
		"never silent for half a minute": {
			8 * time.Minute, 50 * time.Second, nil,
			"building x (first time about 8 min on 2 cores) ...\nbuilding x: still at it after 20s\n" +
				"building x: still at it after 40s\nbuilding x: done in 50s\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, run(t, test.usual, test.takes, test.result)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
