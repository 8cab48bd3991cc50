package stream

import (
	"math"
	"strconv"
	"time"
)

// patience is how long a request may wait for an instance: the bound, or less
// where the request itself says so. Both values are headers as they came; what
// cannot be read says nothing. An expected timeout of 0 means none.
func patience(bound time.Duration, grpcTimeout, expectedMs []byte) time.Duration {
	if d, ok := parseGRPCTimeout(grpcTimeout); ok {
		bound = min(bound, d)
	}
	if ms, err := strconv.ParseUint(string(expectedMs), 10, 40); err == nil && ms > 0 {
		bound = min(bound, time.Duration(ms)*time.Millisecond)
	}
	return bound
}

// parseGRPCTimeout reads the grpc-timeout header: at most eight digits and a unit.
func parseGRPCTimeout(b []byte) (time.Duration, bool) {
	if len(b) < 2 || len(b) > 9 {
		return 0, false
	}
	unit := grpcUnit(b[len(b)-1])
	n, err := strconv.ParseUint(string(b[:len(b)-1]), 10, 32)
	if err != nil || unit == 0 {
		return 0, false
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

func grpcUnit(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}
