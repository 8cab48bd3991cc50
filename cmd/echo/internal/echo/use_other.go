//go:build !linux

package echo

import "time"

// threadTime stands in with time that passes, where a thread's own cannot be read. Only differences of it mean anything.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
