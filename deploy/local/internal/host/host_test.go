package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsBelow(t *testing.T) {
	const mounts = "proc /proc proc rw 0 0\n" +
		"overlay /cache/run/a overlay rw 0 0\n" +
		"tmpfs /cache/run/a/b tmpfs rw 0 0\n" +
		"tmpfs /cache/running tmpfs rw 0 0\n" +
		`tmpfs /cache/run/with\040space tmpfs rw 0 0` + "\n" +
		"nsfs /run/netns/cni-1 nsfs rw 0 0\n" +
		"nsfs /run/netns/cni-12 nsfs rw 0 0\n" +
		"cut\n"
	want := []string{"/run/netns/cni-1", "/cache/run/with space", "/cache/run/a/b", "/cache/run/a"}
	got := mountsBelow(mounts, []string{"/cache/run", "/run/netns/cni-1"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deepest first (-want +got):\n%s", diff)
	}
}

func TestRecordSurvivesSaving(t *testing.T) {
	want := Record{Boot: "b", Sysctls: map[string]string{"net/ipv4/ip_forward": "0"}, Paths: []string{"/run/containerd"}, Namespaces: []string{"mine"}}
	path := filepath.Join(t.TempDir(), "host.json")
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if _, err := Load(path + "x"); !os.IsNotExist(err) {
		t.Errorf("absent record: %v, want not exist", err)
	}
}

func TestOverlaps(t *testing.T) {
	pods := netip.MustParsePrefix("10.244.0.0/22")
	for other, want := range map[string]bool{
		"10.244.3.0/24": true, "10.0.0.0/8": true, "10.244.4.0/24": false, "192.168.0.0/16": false,
	} {
		if got := overlaps(ipNet(netip.MustParsePrefix(other)), pods); got != want {
			t.Errorf("%s overlaps: %v, want %v", other, got, want)
		}
	}
}

func TestReadPIDsIgnoresWhatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cgroup.procs")
	if err := os.WriteFile(path, []byte("12\n0\nx\n7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{12, 7}, readPIDs(path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
