package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func certificateUntil(t *testing.T, end time.Time) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		certificateFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyFile: []byte("key"), authorityFile: []byte("ca"),
	}
}

func TestCertificatesAreDueWhenMissingOrEndingSoon(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	good := certificateUntil(t, now.Add(renewBefore+time.Hour))
	all := func(extproc map[string][]byte) map[string]map[string][]byte {
		return map[string]map[string][]byte{"controller": good, "envoy": good, "operator": good, "extproc": extproc}
	}
	broken := map[string][]byte{certificateFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}), keyFile: good[keyFile], authorityFile: good[authorityFile]}
	for name, row := range map[string]struct {
		found map[string]map[string][]byte
		want  []string
	}{
		"all good":       {all(good), nil},
		"ends soon":      {all(certificateUntil(t, now.Add(renewBefore-time.Hour))), []string{"that of extproc ends 2030-03-01"}},
		"missing":        {all(nil), []string{"extproc has none"}},
		"without a key":  {all(map[string][]byte{certificateFile: good[certificateFile]}), []string{"extproc has none"}},
		"nothing at all": {nil, []string{"controller has none", "envoy has none", "extproc has none", "operator has none"}},
	} {
		if d := cmp.Diff(row.want, due(row.found, now)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if got := due(all(broken), now); len(got) != 1 {
		t.Errorf("broken: %v", got)
	}
}
