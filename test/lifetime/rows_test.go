package lifetime

// row is one kind of end.
type row struct {
	end     string // in words
	wires   []wire
	act     string // of the pod
	conduct conduct
	event   event // what happens meanwhile; all wires at once then
	// pool is that of the wire where it is empty.
	pool         string
	method, path string
	// header is sent in place of a function where it is not empty; "-" is none.
	header string
	// modes are cold, warm and oneshot where it is nil.
	modes []mode
	want  want
	// older is what is different with an older Envoy, by version.
	older map[string]want
}

// want is what must be seen of each request.
type want struct {
	saw     string // by the client
	streams int    // of ext_proc
	how     how    // they end
	pods    fate   // of a oneshot
}

// how streams end.
type how string

const (
	over how = "over" // by the word of Envoy
	lost how = "lost" // by the end of the connection
	gone how = "gone" // with extproc itself
	// either of the first two, as it happens
	either how = "over or lost"
)

// fate is what becomes of a oneshot's pods.
type fate struct{ taken, released int }

var (
	none = fate{}
	one  = fate{1, 1}
	two  = fate{2, 2}
	left = fate{1, 0} // to the controllers
)

// mode is how a function stands when the request comes.
type mode string

const (
	cold    mode = "cold"
	warm    mode = "warm"
	oneshot mode = "oneshot"
)

var (
	plainWires = []wire{http1, http2Wire, http2c}
	bothHTTP   = []wire{http1, http2Wire}
	onlyHTTP1  = []wire{http1}
	onlyGRPC   = []wire{grpcWire}
	upgrades2  = []wire{ws2, connect2}
	untilWarm  = []mode{cold, oneshot}
)

func rows() []row {
	var out []row
	for _, part := range [][]row{answers(), leavers(), failures(), passes(), refusals(), tunnels(), silences(), queues(), endsOfParts()} {
		out = append(out, part...)
	}
	return out
}

func answers() []row {
	return []row{
		{end: "answer with a length", wires: plainWires, act: "answer", want: want{"200", 1, over, one}},
		{end: "answer to HEAD", wires: plainWires, act: "answer", method: "HEAD", want: want{"200", 1, over, one}},
		{end: "204", wires: plainWires, act: "204", want: want{"204", 1, over, one}},
		{end: "304", wires: plainWires, act: "304", want: want{"304", 1, over, one}},
		{end: "early hints, then the answer", wires: plainWires, act: "early hints", want: want{"200", 1, over, one}},
		{end: "chunked answer", wires: plainWires, act: "stream", event: proceed, want: want{"200", 1, over, one}},
		{end: "answer with trailers", wires: plainWires, act: "trailers", want: want{"200, trailers", 1, over, one}},
		{end: "trailers both ways", wires: plainWires, act: "trailers", method: "POST", want: want{"200, trailers", 1, over, one}},
		{end: "upload", wires: plainWires, act: "answer", method: "POST", want: want{"200", 1, over, one}},
		{end: "answer before the upload is over", wires: plainWires, act: "answer early", method: "POST", conduct: staysUpload, want: want{"200", 1, over, one}},
		{end: "error of the function", wires: plainWires, act: "500", want: want{"500", 1, over, one}},
		{end: "421 of the function", wires: plainWires, act: "421", want: want{"421", 1, over, one}},
		{end: "three requests at once on a connection", wires: onlyHTTP1, act: "answer", conduct: pipelines, modes: []mode{cold, warm}, want: want{"200, 200, 200", 3, over, none}},
		{end: "HTTP/1.0", wires: onlyHTTP1, act: "answer", conduct: oldVersion, want: want{"200", 1, over, one}},
		{end: "call", wires: onlyGRPC, act: "answer", want: want{"OK", 1, over, one}},
		{end: "streaming call", wires: onlyGRPC, act: "stream", event: proceed, want: want{"OK", 1, over, one}},
		{end: "status without an answer", wires: onlyGRPC, act: "500", want: want{"Internal", 1, over, one}},
	}
}

func leavers() []row {
	all := []wire{http1, http2Wire, http2c, grpcWire}
	return []row{
		{end: "client leaves before the answer", wires: all, act: "wait", conduct: leaves, want: want{sawLeft, 1, over, one}},
		{end: "client leaves in the middle of the answer", wires: all, act: "stream", conduct: leavesMid, want: want{sawLeft, 1, over, one}},
		{end: "client leaves an answer that it does not read", wires: plainWires, act: "flood", conduct: leavesMid, want: want{sawLeft, 1, over, one}},
		{end: "client leaves in the middle of its upload", wires: all, act: "take", method: "POST", conduct: leavesUpload, want: want{sawLeft, 1, over, one}},
		{end: "client closes its connection", wires: all, act: "stream", conduct: hangsUp, want: want{sawLeft, 1, over, one}},
		{end: "client resets its connection", wires: all, act: "stream", conduct: vanishes, want: want{sawLeft, 1, over, one}},
		{end: "deadline of the client", wires: onlyGRPC, act: "wait", path: deadlinePath, want: want{"DeadlineExceeded", 1, over, one}},
	}
}

func failures() []row {
	return []row{
		{end: "pod closes before the answer", wires: plainWires, act: "close", want: want{"503 instance_reset", 1, over, one}},
		{end: "pod closes before the answer", wires: onlyGRPC, act: "close", want: want{"Unavailable instance_reset", 1, over, one}},
		{end: "pod dies before the answer", wires: plainWires, act: "reset", want: want{"503 instance_reset", 1, over, one}},
		{end: "pod gives the request up before the answer", wires: plainWires, act: "abort", want: want{"503 instance_reset", 1, over, one}},
		{end: "pod closes in the middle of the answer", wires: plainWires, act: "stream, close", event: proceed, want: want{"200, cut", 1, over, one}},
		{end: "pod dies in the middle of the answer", wires: plainWires, act: "stream, reset", event: proceed, want: want{"200, cut", 1, over, one}},
		{end: "pod dies in the middle of the answer", wires: onlyGRPC, act: "stream, reset", event: proceed, want: want{"Internal", 1, over, one}},
		{end: "pod gives the request up in the middle of the answer", wires: plainWires, act: "stream, abort", event: proceed, want: want{"200, cut", 1, over, one}},
		{end: "pod does not speak HTTP", wires: bothHTTP, act: "nonsense", want: want{"502 instance_reset", 1, over, one}},
	}
}

func passes() []row {
	all := []wire{http1, http2Wire}
	return []row{
		{end: "pod takes no connection, the next answers", wires: all, act: "answer", pool: poolDead, modes: untilWarm, want: want{"200", 2, over, two}},
		{end: "pod is another's, the next answers", wires: all, act: "answer", pool: poolStray, modes: untilWarm, want: want{"200", 2, over, two}},
		{end: "no pod takes a connection", wires: all, act: "answer", pool: poolRuins, modes: untilWarm, want: want{"503 connect_failed", 7, over, fate{6, 6}}},
		{end: "no pod that Envoy knows", wires: all, act: "answer", pool: poolNowhere, modes: untilWarm, want: want{"503 no_instance", 7, over, one}, older: noFailover()},
		{end: "client leaves after a second pass", wires: all, act: "wait", conduct: leaves, pool: poolDead, modes: untilWarm, want: want{sawLeft, 2, over, two}},
		{end: "client leaves its upload after a second pass", wires: all, act: "take", method: "POST", conduct: leavesUpload, pool: poolDead, modes: untilWarm, want: want{sawLeft, 2, over, two}},
		{end: "pod dies after a second pass", wires: all, act: "reset", pool: poolDead, modes: untilWarm, want: want{"503 instance_reset", 2, over, two}},
		{end: "tunnel after a second pass", wires: []wire{ws1}, act: "echo", conduct: closes, pool: poolDead, modes: untilWarm, want: want{"101, closed", 2, over, two}},
		{end: "tunnel after a second pass", wires: []wire{connect1}, act: "echo", conduct: closes, pool: poolDead, modes: untilWarm, want: want{"200, closed", 2, over, two}},
		{end: "tunnel after a second pass", wires: upgrades2, act: "echo", conduct: leavesMid, pool: poolDead, modes: untilWarm, want: want{"200, left", 2, over, two}},
	}
}

// noFailover is of versions in which a host that is not known ends the request:
// the composite cluster does not go on to the second pass within the attempt.
func noFailover() map[string]want {
	w := want{"503 no_instance", 1, over, one}
	return map[string]want{envoy139: w, envoy138: w}
}

func refusals() []row {
	all := []mode{cold}
	return []row{
		{end: "no function", wires: bothHTTP, header: "-", modes: all, want: want{"400 header_missing", 1, over, none}},
		{end: "no function", wires: onlyGRPC, header: "-", modes: all, want: want{"InvalidArgument header_missing", 1, over, none}},
		{end: "unreadable function", wires: bothHTTP, header: "{", modes: all, want: want{"400 header_invalid", 1, over, none}},
		{end: "health check", wires: bothHTTP, header: "-", path: "/healthz", modes: all, want: want{"200", 1, over, none}},
		{end: "no HTTP", wires: onlyHTTP1, conduct: raw, modes: all, want: want{"400 bad_request", 0, over, none}},
		{end: "upgrade that is not let through", wires: []wire{ws1}, act: "echo", method: "odd", modes: all, want: want{"403 bad_request", 0, over, none}},
		{end: "pod refuses the upgrade", wires: []wire{ws1, ws2, connect1, connect2}, act: "421", want: want{"421", 1, over, one}},
	}
}

func tunnels() []row {
	return []row{
		{end: "client closes", wires: []wire{ws1}, act: "echo", conduct: closes, want: want{"101, closed", 1, over, one}},
		{end: "client closes", wires: []wire{connect1}, act: "echo", conduct: closes, want: want{"200, closed", 1, over, one}},
		{end: "client closes", wires: []wire{connect2}, act: "echo", conduct: closes, want: want{"200, cut", 1, over, one}},
		{end: "client leaves", wires: []wire{ws1}, act: "echo", conduct: leavesMid, want: want{"101, left", 1, over, one}},
		{end: "client leaves", wires: []wire{connect1, ws2, connect2}, act: "echo", conduct: leavesMid, want: want{"200, left", 1, over, one}},
		{end: "client resets its connection", wires: upgrades2, act: "echo", conduct: vanishes, want: want{"200, left", 1, over, one}},
		{end: "pod closes", wires: []wire{ws1}, act: "bye", event: proceed, want: want{"101, closed", 1, over, one}},
		{end: "pod closes", wires: []wire{connect1}, act: "bye", event: proceed, want: want{"200, closed", 1, over, one}},
		{end: "pod closes", wires: upgrades2, act: "bye", event: proceed, want: want{"200, cut", 1, over, one}},
		{end: "pod dies", wires: []wire{ws1}, act: "bye, reset", event: proceed, want: want{"101, closed", 1, over, one}},
		{end: "pod dies", wires: []wire{connect1}, act: "bye, reset", event: proceed, want: want{"200, closed", 1, over, one}},
		{end: "pod dies", wires: upgrades2, act: "bye, reset", event: proceed, want: want{"200, cut", 1, over, one}},
	}
}

func silences() []row {
	return []row{
		{end: "idle before the answer", wires: plainWires, act: "wait", event: idle, want: want{"504 request_timeout", 1, over, one}},
		{end: "idle in the middle of the answer", wires: plainWires, act: "stream", event: idle, want: want{"200, cut", 1, over, one}},
		{end: "idle in the middle of the upload", wires: plainWires, act: "take", method: "POST", conduct: staysUpload, event: idle, want: want{"408 request_timeout", 1, over, one}},
		{end: "idle call", wires: onlyGRPC, act: "wait", event: idle, want: want{"Unavailable request_timeout", 1, over, one}},
		{end: "client closes its half, and the pod does not hear of it", wires: []wire{ws2}, act: "echo", conduct: closes, event: idle, want: want{"200, cut", 1, over, one}},
		{end: "idle tunnel", wires: []wire{ws1}, act: "echo", event: idle, want: want{"101, closed", 1, over, one}},
		{end: "idle tunnel", wires: []wire{connect1}, act: "echo", event: idle, want: want{"200, closed", 1, over, one}},
		{end: "idle tunnel", wires: upgrades2, act: "echo", event: idle, want: want{"200, cut", 1, over, one}},
	}
}

func queues() []row {
	all := []wire{http1, http2Wire, ws1, connect2}
	return []row{
		{end: "no pod within the hold time", wires: []wire{http1, http2Wire, ws1, ws2, connect1, connect2}, act: "answer", event: noPods, want: want{"503 hold_timeout", 1, over, none}},
		{end: "no pod within the hold time", wires: onlyGRPC, act: "answer", event: noPods, want: want{"Unavailable hold_timeout", 1, over, none}},
		{end: "client leaves before there is a pod", wires: append([]wire{grpcWire, http2c}, all...), act: "answer", event: noPodsLeave, want: want{sawLeft, 1, over, none}},
	}
}

func endsOfParts() []row {
	running := []wire{http1, http2Wire, http2c}
	waiting := []wire{http1, http2Wire}
	return []row{
		{end: "extproc is killed, the answer goes on", wires: running, act: "stream", event: killExtproc, want: want{"200", 0, gone, left}},
		{end: "extproc is killed before the answer", wires: running, act: "wait", event: killExtproc, want: want{"200", 0, gone, left}},
		{end: "extproc is killed, the tunnel goes on", wires: []wire{ws1}, act: "bye", event: killExtproc, want: want{"101, closed", 0, gone, left}},
		{end: "extproc is killed, the tunnel goes on", wires: upgrades2, act: "bye", event: killExtproc, want: want{"200, cut", 0, gone, left}},
		{end: "extproc is killed while the request waits for a pod", wires: waiting, act: "answer", event: killExtprocEarly, want: want{"503 no_instance", 0, gone, none}},
		{end: "extproc stops, and the answer ends soon", wires: running, act: "stream", event: stopExtprocBriefly, want: want{"200", 0, gone, one}},
		{end: "extproc stops, and the answer goes on", wires: running, act: "stream", event: stopExtproc, want: want{"200", 0, gone, left}},
		{end: "extproc stops, and a pod comes soon", wires: waiting, act: "answer", event: stopExtprocPod, want: want{"200", 0, gone, one}},
		{end: "extproc stops, and no pod comes", wires: waiting, act: "answer", event: stopExtprocEarly, want: want{"503 shutting_down", 0, gone, none}},
		{end: "Envoy drains, and the answer ends", wires: running, act: "stream", event: drainEnvoy, want: want{"200", 1, over, one}},
		{end: "Envoy stops in the middle of the answer", wires: running, act: "stream", event: stopEnvoy, want: want{"200, cut", 1, either, left}},
		{end: "Envoy is killed in the middle of the answer", wires: running, act: "stream", event: killEnvoy, want: want{"200, cut", 1, lost, left}},
		{end: "Envoy is killed while the request waits for a pod", wires: waiting, act: "answer", event: killEnvoyEarly, want: want{sawNothing, 1, lost, none}},
	}
}
