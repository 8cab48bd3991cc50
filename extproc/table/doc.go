// Package table holds what extproc knows of the instances of each function, and
// how many requests are in progress on each of them.
//
// Two sources feed it: pushes over xDS and the controller's answers to
// GetInstance. Versions decide between them. Pods carry their resource version,
// a push carries the highest version that its sender had seen: an instance that
// is missing from a push at or above its own version is gone, and comes back
// only with a version above that push's (a pod that was assigned anew after a
// restart), so neither a late push nor a late answer can revive it. An instance
// that only an answer speaks of is dropped when no push confirms it in time, and
// so is one that a push below its version lacks: a pod may have gone while no
// controller was watching, as the last of its namespace that anything happened to,
// and then no controller ever comes to know its version.
//
// That time (--confirm-timeout, 30 s) is no measure of safety: a controller that
// knows of a pod's end pushes a list that ends it here too, whatever is confirmed.
// It must outlast what may hold up a push of a pod that is well: a controller
// lists a pod once its readiness is written, which is tried again while the API
// server is slow, and a replica whose watch lags learns of it later still. To drop
// such a pod sooner, after 2 s for example, would send its requests to the
// controller for nothing, or for a second pod if another replica answers now. What
// a pod costs that vanished unseen is bounded otherwise: requests that cannot
// connect go elsewhere, and two of them put it in quarantine.
//
// The number of functions is bounded (Options.Most): functions without instances,
// and then the least recently used, yield to new ones.
//
// The request path reads immutable views behind atomic pointers and takes no
// lock. It raises the counter of an instance first and then asks whether the
// view still holds the instance; a push stores the view first and is
// acknowledged afterwards. So nothing is picked after the acknowledgement of its
// removal without being counted in the next heartbeat.
//
// The table owns its functions; it never calls the controller.
package table
