// Package race says whether the race detector is on, for tests that live in
// virtual time for very long: a testing/synctest bubble with tens of thousands
// of timers can crash ThreadSanitizer itself (golang/go#78156), so such tests
// take a shorter form under the detector and their full one without.
package race
