package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// probeTimeout bounds one look at one component.
const probeTimeout = 3 * time.Second

// client asks the node's components how they are. The API server gets the administrator's
// certificate and is verified; the loopback ports of the others answer health to anybody.
type client struct {
	api      string
	verified *http.Client
	loopback *http.Client
}

func (n Node) client() (*client, error) {
	pair, err := tls.LoadX509KeyPair(n.pki("admin.crt"), n.pki("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(n.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("load authority: no certificate in it")
	}
	verified := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	// Controller manager and scheduler make up their certificates at start; nothing is sent.
	loopback := &tls.Config{InsecureSkipVerify: true}
	return &client{api: n.API(), verified: httpClient(verified), loopback: httpClient(loopback)}, nil
}

func httpClient(config *tls.Config) *http.Client {
	return &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: nil},
	}
}

// get returns the body of a 200 answer; any other answer is an error.
func (c *client) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	http := c.loopback
	if strings.HasPrefix(url, c.api) {
		http = c.verified
	}
	response, err := http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", url, err)
	}
	if response.StatusCode != 200 {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return body, nil
}

// condition tells whether the object at this path of the API has the condition at "True".
func (c *client) condition(ctx context.Context, path, kind string) (bool, error) {
	body, err := c.get(ctx, c.api+path)
	if err != nil {
		return false, err
	}
	return hasCondition(body, kind)
}

func hasCondition(object []byte, kind string) (bool, error) {
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return false, fmt.Errorf("read object: %w", err)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c.Status == "True", nil
		}
	}
	return false, nil
}

// dial tells whether something listens on the socket.
func dial(ctx context.Context, socket string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// WaitFor calls ready until it is true without an error, for at most limit; the last error, and
// the cause if the context was cancelled, are part of the answer.
func WaitFor(ctx context.Context, what string, limit time.Duration, ready func(context.Context) (bool, error)) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := ready(ctx)
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			waited := time.Since(start).Round(time.Second)
			return fmt.Errorf("%s is not ready after %v: %w", what, waited, errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}
