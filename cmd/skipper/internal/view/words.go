package view

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	"skipper/cmd/skipper/internal/output"
)

// at is nil where the time is not set.
func at(t *timestamppb.Timestamp) *time.Time {
	if !t.IsValid() {
		return nil
	}
	v := t.AsTime()
	return &v
}

// ago is an age as people write it; "" for no time. A time of the future, from
// another clock, is 0s.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(*t), 0))
}

// stamp is a time and its age.
func stamp(t *time.Time, now time.Time) output.Cell {
	if t == nil {
		return output.Cell{}
	}
	return output.Text(t.UTC().Format(time.RFC3339) + " (" + ago(t, now) + " ago)")
}

// some is "" for 0.
func some[T comparable](v T) output.Cell {
	var zero T
	if v == zero {
		return output.Cell{}
	}
	return output.Text(v)
}
