package inflight

import (
	"maps"
	"slices"
	"time"

	"skipper/controller/heartbeat"
)

// Load is what one Envoy has in progress, by its own reports.
type Load struct {
	// Node is Envoy's node id.
	Node string
	// Received is when the report came, the oldest where there are several.
	Received time.Time
	// Words are by pod UID, without zeros. There is more than one only where
	// several Envoys are known to have the node id, by mistake: one of each.
	// Read only.
	Words []map[string]uint32
}

// On is the number of requests in progress on a pod, of all that have the node id.
func (l Load) On(uid string) uint64 {
	var n uint64
	for _, w := range l.Words {
		n += uint64(w[uid])
	}
	return n
}

// Pod merges what is in progress on one pod: by each Envoy the greater of its
// load and of what the routers say that name it; a router that names none
// counts by itself.
//
// Example: Envoy a reports 2; extproc x, of Envoy a, says 3; router y, of no
// Envoy, says 1; Envoy b reports 4 and its extproc is dead: 3 + 1 + 4 = 8.
func Pod(uid string, loads []Load, beats []heartbeat.Report) uint64 {
	var n uint64
	for _, w := range witnesses(loads, beats) {
		n += w.pod(uid)
	}
	return n
}

// Function merges what is in progress on all pods of a function, and what waits
// for one: by each Envoy the greater of its load on all of them and of what the
// routers say that name it. The two witnesses speak at different times, so a
// request that ended on one pod, and the next one on another, would count twice
// if the greater one were taken for each pod.
//
// Example: extproc x, of Envoy a, says 1 on p; Envoy a, a moment later, reports
// 1 on q: that is 1. Of the pods each may have one, for Pod.
func Function(uids []string, loads []Load, beats []heartbeat.Report) uint64 {
	all := map[string]bool{}
	for _, uid := range uids {
		all[uid] = true
	}
	for _, b := range beats {
		for uid := range b.Instances {
			all[uid] = true
		}
	}
	var n uint64
	for _, w := range witnesses(loads, beats) {
		n += w.function(maps.Keys(all))
	}
	return n
}

// witness is all that is said of the requests that pass through one Envoy, or
// through one router without an Envoy.
type witness struct {
	load  Load // empty where there is none
	beats []heartbeat.Report
}

func witnesses(loads []Load, beats []heartbeat.Report) []witness {
	out := make([]witness, len(loads), len(loads)+len(beats))
	at := make(map[string]int, len(loads)+len(beats))
	for i, l := range loads {
		out[i].load, at[l.Node] = l, i
	}
	for _, b := range beats {
		i, known := at[b.Node]
		if b.Node == "" || !known {
			i = len(out)
			out = append(out, witness{})
			at[b.Node] = i
		}
		out[i].beats = append(out[i].beats, b)
	}
	return out
}

func (w witness) pod(uid string) uint64 {
	var said uint64
	for _, b := range w.beats {
		said += uint64(b.Instances[uid])
	}
	return max(said, w.load.On(uid))
}

func (w witness) function(uids func(yield func(string) bool)) uint64 {
	var reported, said uint64
	for uid := range uids {
		reported += w.load.On(uid)
	}
	for _, b := range w.beats {
		said += max(uint64(b.InFlight), placed(b))
	}
	return max(reported, said)
}

// excess are the requests of a router that are on no pod, as far as it says.
func excess(b heartbeat.Report) uint64 {
	on := placed(b)
	return max(uint64(b.InFlight), on) - on
}

// placed are the requests of a router that it says to be on a pod.
func placed(b heartbeat.Report) uint64 {
	var n uint64
	for _, on := range b.Instances {
		n += uint64(on)
	}
	return n
}

// settled is after how long without a word of it in a router's messages a
// function that was idle there is still idle: twice the heartbeat interval, in
// which a router names each function that it has requests of.
const settled = 10 * time.Second

// What was true this long before a word came may not be in it: it was under
// way, and Envoy counts a request a moment after extproc has sent it there.
// An extproc gives a heartbeat 5 s to arrive.
const (
	loadUnderWay = time.Second
	beatUnderWay = 5 * time.Second
)

// Known tells whether what is said of a pod can be relied upon as of a time:
// every Envoy and every router of its function has spoken later, and each
// router says where its requests are. asOf is the time as of which the oldest
// of those words holds; zero where nobody speaks.
func Known(loads []Load, beats []heartbeat.Report, since time.Time) (known bool, asOf time.Time) {
	times := make([]time.Time, 0, len(loads)+len(beats))
	reported := make(map[string]bool, len(loads))
	known = true
	for _, l := range loads {
		times = append(times, l.Received.Add(-loadUnderWay))
		reported[l.Node] = true
	}
	for _, b := range beats {
		at := spoke(b)
		if !reported[b.Node] { // else Envoy's word tells of what is not in this one
			at = at.Add(-beatUnderWay)
		}
		times = append(times, at)
		known = known && excess(b) == 0
	}
	if len(times) == 0 {
		return true, time.Time{}
	}
	asOf = slices.MinFunc(times, time.Time.Compare)
	return known && asOf.After(since), asOf
}

// spoke is when a router spoke of a function: of one that it no longer names
// because it is idle, any later message tells.
func spoke(b heartbeat.Report) time.Time {
	if idle := b.Heard.Add(-settled); b.InFlight == 0 && len(b.Instances) == 0 && idle.After(b.Received) {
		return idle
	}
	return b.Received
}
