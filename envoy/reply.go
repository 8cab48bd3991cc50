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
	flags  []string // Envoy's response flags
	reason reason.Reason
	retry  bool // whether the answer is a 503, which says when to come back
	text   string
}

// replies covers what Envoy can meet between extproc's word and the answer.
func replies() []reply {
	return []reply{
		{[]string{"UH", "NC"}, reason.NoInstance, true, "no instance of the function can be reached; try again in a second\n"},
		{[]string{"UF"}, reason.ConnectFailed, true, "the function's instance took no connection; try again in a second\n"},
		{[]string{"UC", "UR"}, reason.InstanceReset, true, "the function's instance ended the connection before it answered; try again if the request may be done twice\n"},
		{[]string{"UT", "SI", "DT"}, reason.RequestTimeout, false, "the request was idle or took too long; send or answer something within the gateway's idle timeout\n"},
		{[]string{"DPE"}, reason.BadRequest, false, "the request is not valid HTTP or its headers are too large; correct it before trying again\n"},
	}
}

// localReplies gives Envoy's own answers a reason. An answer that extproc made
// passes here too and keeps its reason, because nothing there is overwritten.
func (b *builder) localReplies() *hcmv3.LocalReplyConfig {
	out := &hcmv3.LocalReplyConfig{}
	for _, r := range replies() {
		out.Mappers = append(out.Mappers, r.mapper())
	}
	return out
}

func (r reply) mapper() *hcmv3.ResponseMapper {
	headers := []*corev3.HeaderValueOption{header(HeaderReason, string(r.reason), corev3.HeaderValueOption_ADD_IF_ABSENT)}
	if r.retry {
		headers = append(headers, header("retry-after", retryAfter, corev3.HeaderValueOption_ADD_IF_ABSENT))
	}
	return &hcmv3.ResponseMapper{
		Filter:       flagFilter(r.flags),
		Body:         &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: r.text}},
		HeadersToAdd: headers,
	}
}

func flagFilter(flags []string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: flags},
	}}
}
