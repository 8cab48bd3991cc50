package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"skipper/proto/reason"
)

// retryAfter is in seconds: by then extproc or the controller has noticed.
const retryAfter = "1"

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
		{flagFilter([]string{"UF"}), reason.ConnectFailed, true, "the function's instance took no connection; try again in a second\n"},
		{flagFilter([]string{"UC", "UR"}), reason.InstanceReset, true, "the function's instance ended the connection before it answered; try again if the request may be done twice\n"},
		{flagFilter([]string{"UPE"}), reason.InstanceReset, false, "the function's instance did not answer with valid HTTP; its pool's skipper/protocol must be the one it speaks\n"},
		{flagFilter([]string{"UT", "SI", "DT"}), reason.RequestTimeout, false, "the request was idle or took too long; send or answer something within the gateway's idle timeout\n"},
		{flagFilter([]string{"DPE"}), reason.BadRequest, false, "the request is not valid HTTP or its headers are too large; correct it before trying again\n"},
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

func (r reply) mapper() *hcmv3.ResponseMapper {
	m := &hcmv3.ResponseMapper{
		Filter:       r.when,
		HeadersToAdd: []*corev3.HeaderValueOption{header(HeaderReason, string(r.reason), corev3.HeaderValueOption_ADD_IF_ABSENT)},
	}
	if r.retry {
		m.HeadersToAdd = append(m.HeadersToAdd, header("retry-after", retryAfter, corev3.HeaderValueOption_ADD_IF_ABSENT))
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
