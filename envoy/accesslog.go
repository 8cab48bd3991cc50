package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// logFields maps the members of a log line to Envoy's operators; the package
// comment explains them. The query is left out, because callers put secrets
// there, and so is the function's header, which may be a token.
func logFields() map[string]string {
	return map[string]string{
		"time":        "%START_TIME%",
		"namespace":   "%DYNAMIC_METADATA(" + FunctionMetadata + ":namespace)%",
		"deployment":  "%DYNAMIC_METADATA(" + FunctionMetadata + ":deployment)%",
		"tenant":      "%DYNAMIC_METADATA(" + FunctionMetadata + ":tenant)%",
		"client":      "%DOWNSTREAM_REMOTE_ADDRESS%",
		"method":      "%REQ(:METHOD)%",
		"host":        "%REQ(:AUTHORITY)%",
		"path":        "%PATH(NQ)%",
		"protocol":    "%PROTOCOL%",
		"status":      "%RESPONSE_CODE%",
		"flags":       "%RESPONSE_FLAGS%",
		"details":     "%RESPONSE_CODE_DETAILS%",
		"failure":     "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"reason":      "%RESP(X-SKIPPER-REASON)%",
		"request":     "%REQ(X-SKIPPER-REQUEST)%",
		"instance":    "%REQ(X-SKIPPER-INSTANCE)%",
		"cluster":     "%UPSTREAM_CLUSTER%",
		"upstream":    "%UPSTREAM_HOST%",
		"attempts":    "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
		"received":    "%BYTES_RECEIVED%",
		"sent":        "%BYTES_SENT%",
		"duration_ms": "%DURATION%",
		"upstream_ms": "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:ms)%",
		"answer_ms":   "%RESPONSE_DURATION%",
	}
}

// accessLog has a line for each pass of a request; they share its id, and the
// line of the first pass comes last and tells what the client got.
func (b *builder) accessLog(listener string) []*accesslogv3.AccessLog {
	if b.cfg.AccessLog == AccessLogOff {
		return nil
	}
	fields := map[string]*structpb.Value{"listener": structpb.NewStringValue(listener)}
	for k, v := range logFields() {
		fields[k] = structpb.NewStringValue(v)
	}
	out := &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.stdout",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: b.any(&streamv3.StdoutAccessLog{
			AccessLogFormat: &streamv3.StdoutAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				Format:          &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
				OmitEmptyValues: true,
			}},
		})},
	}
	if b.cfg.AccessLog == AccessLogErrors {
		out.Filter = onlyErrors()
	}
	return []*accesslogv3.AccessLog{out}
}

// onlyErrors also finds answers that began well and were cut or timed out. A
// client that left is not an error.
func onlyErrors() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{OrFilter: &accesslogv3.OrFilter{
		Filters: []*accesslogv3.AccessLogFilter{statusAtLeast(500), flagFilter([]string{"UC", "UR", "UT", "SI", "UPE"})},
	}}}
}

func statusAtLeast(code uint32) *accesslogv3.AccessLogFilter {
	return statusFilter(accesslogv3.ComparisonFilter_GE, code)
}

// statusFilter compares with a constant: the key is one that nobody sets.
func statusFilter(op accesslogv3.ComparisonFilter_Op, code uint32) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
		StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op:    op,
			Value: &corev3.RuntimeUInt32{DefaultValue: code, RuntimeKey: "skipper.no_override"},
		}},
	}}
}
