// Package replicas keeps a gRPC connection spread over all controllers behind a
// name, and off those that died.
//
// gRPC's own means are too slow for requests that wait: its DNS resolver looks
// up a name again only after a connection broke, so a replica that was added is
// not found, and its pings are at least ten seconds apart, so one that went
// silent (a stopped process, a network that drops packets) is believed in for
// that long. Here the name is looked up each second, and each connection is
// probed by HTTP/2 pings of our own, put between the frames that gRPC writes. A
// connection on which nothing at all arrives although probes wait for an answer
// is closed within 0.8 s, which ends its streams and calls with UNAVAILABLE:
// they go to another replica.
//
// A starved machine must not cost connections. Time counts from when a probe
// was really written; a round that ended late, because this process was not run,
// does not count; and every byte received is a sign of life.
package replicas
