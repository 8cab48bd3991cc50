package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind of chaos.
type Kind string

// The kinds. Those with a duration end by themselves after it.
const (
	// KillPod kills a pod that has a tenant.
	KillPod Kind = podKill
	// RestartController and KillController end a controller, by SIGTERM and by
	// SIGKILL; it is started again after the duration.
	RestartController Kind = "restart controller"
	KillController    Kind = "kill controller"
	// StopController freezes a controller as a whole, by SIGSTOP.
	StopController Kind = "stop controller"
	// FreezeWatches holds up all watches of a controller that goes on otherwise.
	FreezeWatch Kind = "freeze watches"
	// RestartExtproc and KillExtproc are as with controllers.
	RestartExtproc Kind = "restart extproc"
	KillExtproc    Kind = "kill extproc"
	// RestartEnvoy and KillEnvoy are as with controllers.
	RestartEnvoy Kind = "restart envoy"
	KillEnvoy    Kind = "kill envoy"
	// PartitionExtproc, PartitionEnvoy and PartitionBoth cut a gateway's parts
	// off from all controllers, and nobody is told.
	PartitionExtproc Kind = "partition extproc"
	PartitionEnvoy   Kind = "partition envoy"
	PartitionBoth    Kind = "partition envoy and extproc"
)

// Event is one thing that is done to the world.
type Event struct {
	At   time.Duration // since the start
	Kind Kind
	// Target is the number of the controller or gateway.
	Target int
	For    time.Duration
	// Death of a pod.
	Death Death
}

func (e Event) String() string {
	if e.Kind == KillPod {
		return fmt.Sprintf("%s %s (%s)", e.At.Round(time.Millisecond), e.Kind, e.Death)
	}
	return fmt.Sprintf("%s %s %d for %s", e.At.Round(time.Millisecond), e.Kind, e.Target, e.For.Round(time.Millisecond))
}

// Storm says how much happens.
type Storm struct {
	Seed uint64
	// Total is how long it lasts; nothing that it does lasts longer.
	Total time.Duration
	// PodEvery and PartEvery are the mean times between deaths of pods, and
	// between what happens to Skipper's parts; 0: never.
	PodEvery, PartEvery time.Duration
	// Restart bounds how long a part is away when it restarts, Freeze how long
	// one is frozen or cut off.
	Restart, Freeze time.Duration
	// Controllers and Gateways are how many there are.
	Controllers, Gateways int
	// Kinds to choose from for parts.
	Kinds []Kind
}

// Plan is what will happen, in order: the same for the same Storm.
func (s Storm) Plan() []Event {
	var out []Event
	r := rand.New(rand.NewPCG(s.Seed, 2))
	for at := gap(r, s.PodEvery); s.PodEvery > 0 && at < s.Total; at += gap(r, s.PodEvery) {
		out = append(out, Event{At: at, Kind: KillPod, Death: Deaths()[r.IntN(len(Deaths()))]})
	}
	for at := gap(r, s.PartEvery); s.PartEvery > 0 && len(s.Kinds) > 0 && at < s.Total; at += gap(r, s.PartEvery) {
		e := Event{At: at, Kind: s.Kinds[r.IntN(len(s.Kinds))]}
		most, targets := s.Freeze, s.Gateways
		switch e.Kind {
		case RestartController, KillController:
			most, targets = s.Restart, s.Controllers
		case StopController, FreezeWatch:
			targets = s.Controllers
		case RestartExtproc, KillExtproc, RestartEnvoy, KillEnvoy:
			most = s.Restart
		}
		e.Target, e.For = r.IntN(targets), min(skewed(r, most), s.Total-at)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Event) int { return int(a.At - b.At) })
	return out
}

// skewed is mostly short, and at times nearly most.
func skewed(r *rand.Rand, most time.Duration) time.Duration {
	x := r.Float64()
	return time.Duration(x * x * float64(most))
}

// gap is exponential, as between events that know nothing of each other.
func gap(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Millisecond + time.Duration(r.ExpFloat64()*float64(mean))
}

// part names what the event happens to, so that one thing happens to it at a
// time; "" is any pod.
func (e Event) part() string {
	switch e.Kind {
	case KillPod:
		return ""
	case RestartController, KillController, StopController:
		return fmt.Sprint("controller ", e.Target)
	case FreezeWatch:
		return fmt.Sprint("watches ", e.Target)
	case RestartExtproc, KillExtproc:
		return fmt.Sprint("extproc ", e.Target)
	case RestartEnvoy, KillEnvoy:
		return fmt.Sprint("envoy ", e.Target)
	}
	return fmt.Sprint("network ", e.Target)
}
