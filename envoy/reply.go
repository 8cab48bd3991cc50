package envoy

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/proto/reason"
)

// retryAfter is in seconds: by then extproc or the controller has noticed.
const retryAfter = "1"

// tooLargeToRetry is Envoy's own answer when the body outgrows the buffer
// between two attempts.
const tooLargeToRetry = 507

// reply is what a client is told when Envoy itself answers.
type reply struct {
	when   *accesslogv3.AccessLogFilter
	reason reason.Reason
	retry  bool   // whether to say when to come back, as every 429 and 503 does
	text   string // empty: Envoy's own words, or extproc's
}

// replies are tried in order. Those by flag cover what Envoy meets between
// extproc's word and the pod's answer. Those by status catch the rest, which
// is mostly what was refused before it was a request; extproc's answers match
// them too, so they carry no text.
func replies() []reply {
	eq := accesslogv3.ComparisonFilter_EQ
	return []reply{
		{flagFilter([]string{"UH", "NC"}), reason.NoInstance, true, "no instance of the function can be reached; try again in a second\n"},
		{flagFilter([]string{"UF"}), reason.ConnectFailed, true, "the function's instance took no connection, and the request's body is too large to be sent to another; send the request again\n"},
		{flagFilter([]string{"UC", "UR"}), reason.InstanceReset, true, "the function's instance ended the connection before it answered; try again if the request may be done twice\n"},
		{flagFilter([]string{"UPE"}), reason.InstanceReset, false, "the function's instance did not answer with valid HTTP; its pool's skipper/protocol must be the one it speaks\n"},
		{flagFilter([]string{"UT", "SI", "DT"}), reason.RequestTimeout, false, "the request was idle or took too long; send or answer something within the gateway's idle timeout\n"},
		{flagFilter([]string{"DPE"}), reason.BadRequest, false, "the request is not valid HTTP or its headers are too large; correct it before trying again\n"},
		{statusFilter(eq, tooLargeToRetry), reason.BodyNotReplayable, true, notReplayable},
		{statusFilter(eq, 503), reason.Internal, true, ""},
		{statusAtLeast(500), reason.Internal, false, ""},
		{statusFilter(eq, 429), reason.LimitReached, true, ""},
		{statusFilter(eq, 408), reason.RequestTimeout, false, ""},
		{statusAtLeast(400), reason.BadRequest, false, ""},
	}
}

// localReplies gives Envoy's own answers a reason. An answer that extproc made
// passes here too and keeps its headers, because nothing there is overwritten.
func (b *builder) localReplies() *hcmv3.LocalReplyConfig {
	out := &hcmv3.LocalReplyConfig{}
	for _, r := range replies() {
		out.Mappers = append(out.Mappers, r.mapper())
	}
	return out
}

// keepReasonsOfPasses removes a reason that a pod wrote and keeps one that a
// later pass gave. Both are answers of the upstream to Envoy; what tells them
// apart is the metadata of the endpoint that answered. Envoy has no condition
// for a header, but does the three levels one after the other:
//  1. fromPass is there if the endpoint is that of the second pass;
//  2. where it is there, its value becomes the reason, which may be none;
//  3. the reason becomes the value of fromPass, or goes.
//
// The headerFilter removes fromPass in the end. Envoy's own answers of this
// pass get their reason after all this.
func keepReasonsOfPasses(c *routev3.RouteConfiguration) {
	for _, host := range c.GetVirtualHosts() {
		for _, r := range host.GetRoutes() {
			r.ResponseHeadersToRemove = []string{fromPass}
			r.ResponseHeadersToAdd = []*corev3.HeaderValueOption{header(fromPass, fmt.Sprintf("%%UPSTREAM_METADATA(%s:%s)%%", metadataOfPasses, metadataKey), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)}
		}
		reasonOrNone := header(fromPass, "%RESP("+HeaderReason+")%", corev3.HeaderValueOption_OVERWRITE_IF_EXISTS)
		reasonOrNone.KeepEmptyValue = true
		host.ResponseHeadersToAdd = []*corev3.HeaderValueOption{reasonOrNone}
	}
	c.ResponseHeadersToRemove = []string{HeaderReason}
	c.ResponseHeadersToAdd = []*corev3.HeaderValueOption{header(HeaderReason, "%RESP("+fromPass+")%", corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)}
}

func (r reply) mapper() *hcmv3.ResponseMapper {
	m := &hcmv3.ResponseMapper{
		Filter:       r.when,
		HeadersToAdd: []*corev3.HeaderValueOption{header(HeaderReason, string(r.reason), corev3.HeaderValueOption_ADD_IF_ABSENT)},
	}
	if r.retry {
		m.HeadersToAdd = append(m.HeadersToAdd, header("retry-after", retryAfter, corev3.HeaderValueOption_ADD_IF_ABSENT))
	}
	if r.reason == reason.BodyNotReplayable {
		m.StatusCode = wrapperspb.UInt32(503)
	}
	if r.text != "" {
		m.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: r.text}}
	}
	return m
}

func flagFilter(flags []string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: flags},
	}}
}
