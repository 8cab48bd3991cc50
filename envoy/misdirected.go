package envoy

import (
	typedv3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	customv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/custom_response/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	policyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/custom_response/local_response_policy/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/proto/reason"
)

// notReplayable is what a client is told whose request met the wrong pod after
// more of its body had passed than Config.RetryBuffer holds.
const notReplayable = "the request met an instance it was not meant for, and its body is too large to be sent to another; send the request again\n"

// misdirectedFilter answers in place of a pod that refused the request as
// meant for another, where no further attempt was possible: that pod's words
// are nothing to the client.
//
// Envoy calls this filter's messages work in progress, and warns of them at
// the start. They are as old as Envoy 1.25 and in wide use, and no stable
// filter changes a status: header mutations may not.
func (b *builder) misdirectedFilter() *hcmv3.HttpFilter {
	action := &typedv3.TypedExtensionConfig{Name: "not_replayable", TypedConfig: b.any(notReplayableReply())}
	return &hcmv3.HttpFilter{
		Name: "envoy.filters.http.custom_response",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.any(&customv3.CustomResponse{
			CustomResponseMatcher: &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{
				MatcherList: &matcherv3.Matcher_MatcherList{Matchers: []*matcherv3.Matcher_MatcherList_FieldMatcher{{
					Predicate: b.answerHas(HeaderMisdirected),
					OnMatch:   &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: action}},
				}}},
			}},
		})},
	}
}

// answerHas matches any value of the header, and not its absence.
func (b *builder) answerHas(name string) *matcherv3.Matcher_MatcherList_Predicate {
	anything := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
		Regex: ".*", EngineType: &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{}},
	}}}
	return &matcherv3.Matcher_MatcherList_Predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input:   &typedv3.TypedExtensionConfig{Name: "header", TypedConfig: b.any(&inputv3.HttpResponseHeaderMatchInput{HeaderName: name})},
			Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: anything},
		},
	}}
}

func notReplayableReply() *policyv3.LocalResponsePolicy {
	return &policyv3.LocalResponsePolicy{
		StatusCode: wrapperspb.UInt32(503),
		Body:       &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: notReplayable}},
		ResponseHeadersToAdd: []*corev3.HeaderValueOption{
			header(HeaderReason, string(reason.BodyNotReplayable), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
		},
		ResponseCodeDetailsAction: &policyv3.LocalResponsePolicy_ResponseCodeDetails{ResponseCodeDetails: string(reason.BodyNotReplayable)},
	}
}
