package preflight

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const plenty = 20 << 30

// good is a machine on which a node can start; rows change it.
func good() Facts {
	return Facts{OS: "linux", FreeBytes: map[string]uint64{"/cache": plenty}, Bridge: "kcni0", HasApt: true, GoFound: true}
}

func with(change func(*Facts)) Facts {
	f := good()
	change(&f)
	return f
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		facts Facts
		want  []string // the words that each problem must hold, in order
	}{
		"all is well":                   {good(), nil},
		"exactly enough disk":           {with(func(f *Facts) { f.FreeBytes["/cache"] = minFree }), nil},
		"a byte too little":             {with(func(f *Facts) { f.FreeBytes["/cache"] = minFree - 1 }), []string{"/cache has 10.0 GB free"}},
		"not Linux, and that is all":    {with(func(f *Facts) { f.OS, f.UID, f.FreeBytes = "darwin", 501, nil }), []string{"darwin"}},
		"not root, and that is all":     {with(func(f *Facts) { f.UID, f.GoFound = 1000, false }), []string{"needs root"}},
		"no Go":                         {with(func(f *Facts) { f.GoFound = false }), []string{"install Go"}},
		"foreign bridge":                {with(func(f *Facts) { f.HasBridge = true }), []string{"interface kcni0"}},
		"own bridge":                    {with(func(f *Facts) { f.HasBridge, f.OwnState = true, true }), nil},
		"foreign pods":                  {with(func(f *Facts) { f.HasPods = true }), []string{"another kubelet"}},
		"own pods":                      {with(func(f *Facts) { f.HasPods, f.OwnState = true, true }), nil},
		"ports taken":                   {with(func(f *Facts) { f.TakenPorts = []string{"a:1", "b:2"} }), []string{"a:1, b:2"}},
		"routes overlap":                {with(func(f *Facts) { f.Conflicts = []string{"10.0.0.0/8 on tun0"} }), []string{"10.0.0.0/8 on tun0"}},
		"packages missing, apt there":   {with(func(f *Facts) { f.Missing = []string{"gcc"} }), nil},
		"packages missing, no apt":      {with(func(f *Facts) { f.Missing, f.HasApt = []string{"gcc", "nftables"}, false }), []string{"gcc nftables"}},
		"several problems, all of them": {with(func(f *Facts) { f.GoFound, f.HasPods, f.FreeBytes["/x"] = false, true, 0 }), []string{"install Go", "/x has 0.0 GB", "another kubelet"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Check(test.facts)
			if len(got) != len(test.want) {
				t.Fatalf("problems %q, want %d", got, len(test.want))
			}
			for i, words := range test.want {
				if !strings.Contains(got[i], words) || strings.Contains(got[i], "\n") {
					t.Errorf("problem %q, want one line with %q", got[i], words)
				}
			}
		})
	}
}

func TestTakenSeesAListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if diff := cmp.Diff([]string{address}, Taken(t.Context(), []string{address})); diff != "" {
		t.Errorf("with a listener (-want +got):\n%s", diff)
	}
	l.Close()
	if got := Taken(t.Context(), []string{address}); len(got) > 0 {
		t.Errorf("without a listener %v, want none", got)
	}
}

func TestTakenTriesAllInterfacesForAnAddressToCome(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("198.51.100.7", port) // an address for documentation: nobody has it
	if diff := cmp.Diff([]string{address}, Taken(t.Context(), []string{address})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
