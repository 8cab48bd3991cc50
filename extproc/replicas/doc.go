// Package replicas keeps a gRPC connection spread over all controllers behind a
// name, and off those that died.
//
// gRPC's own means are too slow for requests that wait: its DNS resolver looks
// up a name again only after a connection broke, so a replica that was added is
// not found, and its pings are at least ten seconds apart, so one that went
// silent (a stopped process, a network that drops packets) is believed in for
// that long. Here the name is looked up each second, and a connection on which
// nothing arrived for a few of the controllers' own pings (one a second,
// xds/server.ServerOptions) is closed, which ends its streams and calls with
// UNAVAILABLE: they go to another replica.
package replicas
