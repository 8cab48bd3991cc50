package envoy

import (
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"skipper/proto/reason"
)

// Headers that Envoy and extproc agree on.
const (
	// HeaderFunction names the function; the client sets it, extproc removes it.
	HeaderFunction = "x-skipper-function"
	// HeaderCluster names the cluster of the instance; extproc sets it, the
	// route reads and removes it.
	HeaderCluster = "x-skipper-cluster"
	// HeaderInstance is the UID of the pod that extproc chose.
	HeaderInstance = "x-skipper-instance"
	// HeaderRequest is the unguessable id of the request.
	HeaderRequest = "x-skipper-request"
	// HeaderMisdirected is a pod's word that a request was meant for another.
	HeaderMisdirected = "x-skipper-misdirected"
	// HeaderReason says why a request did not reach a function.
	HeaderReason = reason.Header
)

const ourPrefix = "x-skipper-"

// earlyMutations removes what only Envoy and extproc may say, before anything
// reads it: our headers (all but the function), Envoy's own controls, and at
// the edge what clients say about where they come from. Names with underscores
// go too, because CGI-like servers cannot tell them from those with dashes.
func (b *builder) earlyMutations() []*corev3.TypedExtensionConfig {
	underscored, forwarding := "x_skipper[-_].*|x-skipper_.*|", "x_forwarded[-_].*|x-forwarded_.*"
	if b.cfg.TrustedHops == 0 {
		forwarding = "x[-_]forwarded[-_].*|forwarded"
	}
	return []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: b.any(&earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{
			remove(matching(oursButFunction())),
			remove(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "x-envoy-"}}),
			remove(matching(underscored + forwarding)),
		}}),
	}}
}

// headerFilter removes our headers from trailers, which some servers and
// clients merge into the headers, and what answers need to carry only as far
// as here.
func (b *builder) headerFilter() *hcmv3.HttpFilter {
	ours := []*mutationv3.HeaderMutation{remove(matching("x[-_]skipper[-_].*"))}
	return &hcmv3.HttpFilter{
		Name: "envoy.filters.http.header_mutation",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.any(&headermutationv3.HeaderMutation{
			Mutations: &headermutationv3.Mutations{
				RequestTrailersMutations: ours, ResponseTrailersMutations: ours,
				ResponseMutations: []*mutationv3.HeaderMutation{removeHeader(HeaderMisdirected), removeHeader(fromPass)},
			},
		})},
	}
}

func removeHeader(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func remove(names *matcherv3.StringMatcher) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: names},
	}}
}

func matching(pattern string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: pattern}},
	}
}

// oursButFunction matches every name that starts with x-skipper- except
// x-skipper-function. Envoy's expressions have no look-ahead and a bounded
// size, so the exception is spelt letter by letter from its end: the name stops
// here, or goes on with another letter, or with the right one and so forth.
func oursButFunction() string {
	name := strings.TrimPrefix(HeaderFunction, ourPrefix)
	rest := ".+"
	for i := len(name) - 1; i >= 0; i-- {
		rest = "([^" + name[i:i+1] + "].*|" + name[i:i+1] + rest + ")?"
	}
	return ourPrefix + rest
}

// forwardedHeaders tells the pod who asked for what. At the edge the values
// are ours alone; behind trusted proxies theirs stay and the peer is added, as
// RFC 7239 says. X-Forwarded-Proto is the connection manager's. X-Forwarded-For
// is not, because it would hide a client on loopback behind an address of the
// host. Envoy writes IPv6 with brackets and port, which is a valid node inside
// quotes, and refuses a host with a quote in it.
func (b *builder) forwardedHeaders() []*corev3.HeaderValueOption {
	first, list := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	if b.cfg.TrustedHops > 0 {
		first, list = corev3.HeaderValueOption_ADD_IF_ABSENT, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return []*corev3.HeaderValueOption{
		header("x-forwarded-for", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%", list),
		header("x-forwarded-host", "%REQ(:AUTHORITY)%", first),
		header("forwarded", `for="%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%";host="%REQ(:AUTHORITY)%";proto=%REQ(X-FORWARDED-PROTO)%`, list),
	}
}

func header(key, value string, action corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: key, Value: value}, AppendAction: action}
}
