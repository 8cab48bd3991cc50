package claim

import "k8s.io/client-go/rest"

// ClientConfig is base for a client that writes claims: it is not held up by
// the limits that base sets for background work, because the API server's own
// fairness rules apply to it, and it reads replies as protobuf.
func ClientConfig(base *rest.Config) *rest.Config {
	c := rest.CopyConfig(base)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	c.ContentType = "application/vnd.kubernetes.protobuf"
	return c
}
