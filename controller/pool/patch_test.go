package pool

import "testing"

func TestAnnotationPatch(t *testing.T) {
	got := string(AnnotationPatch(Pod{UID: "u", Tenant: "t"}, [2]string{AnnotationDrainingAt, "now"}, [2]string{"a~b/c", "d"}))
	const want = `[{"op":"test","path":"/metadata/uid","value":"u"},` +
		`{"op":"test","path":"/metadata/labels/skipper~1tenant","value":"t"},` +
		`{"op":"add","path":"/metadata/annotations/skipper~1draining-at","value":"now"},` +
		`{"op":"add","path":"/metadata/annotations/a~0b~1c","value":"d"}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
