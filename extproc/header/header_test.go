package header

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func header(tenant string) []byte {
	return fn.Marshal(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 2}})
}

func (c *Cache) parse(raw []byte) (*Function, error) {
	m, err := c.Read(raw, Parse)
	return m.Function, err
}

func TestParseDescribesTheFunction(t *testing.T) {
	got, err := NewCache(8).parse(header("t1"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Function{
		Key: fn.Key{Namespace: "prod", Deployment: "echo", Tenant: "t1"}, Name: "prod/echo/t1", Hash: HashName("prod/echo/t1"),
		Spec: &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t1", Scale: &skipperpb.Scale{MaxInstances: 2}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("function (-want +got):\n%s", diff)
	}
}

func TestSecondParseIsRemembered(t *testing.T) {
	c := NewCache(1024)
	raw := header("t1")
	first, err := c.parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if again, err := c.parse(raw); err != nil || again != first {
			t.Fatalf("got %p, %v, want %p", again, err, first)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestCacheKeepsNoReferenceToItsInput(t *testing.T) {
	c := NewCache(8)
	raw := header("t1")
	first, err := c.parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	copy(raw, bytes.Replace(raw, []byte("t1"), []byte("t2"), 1))
	second, err := c.parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if first.Key.Tenant != "t1" || second.Key.Tenant != "t2" {
		t.Errorf("tenants are %s and %s", first.Key.Tenant, second.Key.Tenant)
	}
}

func TestErrorsAreForTheClientAndNotRemembered(t *testing.T) {
	c := NewCache(8)
	for range 2 {
		if _, err := c.parse([]byte(`{"namespace":"prod"}`)); err == nil || !strings.Contains(err.Error(), "tenant is empty") {
			t.Errorf("error is %v", err)
		}
	}
}

func TestCacheIsBoundedAndKeepsWhatIsRead(t *testing.T) {
	c := NewCache(64)
	hot := header("hot")
	first, err := c.parse(hot)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10_000 {
		if _, err := c.parse(header(fmt.Sprintf("cold-%d", n))); err != nil {
			t.Fatal(err)
		}
		if again, err := c.parse(hot); err != nil || again != first {
			t.Fatalf("after %d other headers the hot one was parsed again", n)
		}
	}
	kept := 0
	for i := range c.sets {
		for j := range c.sets[i].slots {
			if c.sets[i].slots[j].Load() != nil {
				kept++
			}
		}
	}
	if kept > 64 {
		t.Errorf("%d headers are kept, want at most 64", kept)
	}
}

func TestLongHeadersAreNotKept(t *testing.T) {
	c := NewCache(8)
	raw := fn.Marshal(&skipperpb.Function{
		Namespace: "prod", Deployment: "echo", Tenant: "t", Metadata: strings.Repeat("x", MaxCached), Scale: &skipperpb.Scale{MaxInstances: 1},
	})
	first, err := c.parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := c.parse(raw); err != nil || second == first {
		t.Errorf("a header of %d bytes was kept (%v)", len(raw), err)
	}
}

func TestCacheUnderConcurrency(t *testing.T) {
	c := NewCache(16)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for n := range 500 {
				tenant := fmt.Sprintf("t%d", (n*g)%40)
				if f, err := c.parse(header(tenant)); err != nil || f.Key.Tenant != tenant {
					t.Errorf("parsed %s as %v, %v", tenant, f, err)
				}
			}
		})
	}
	all.Wait()
}

// FuzzParse holds the cache against the parser behind it.
func FuzzParse(f *testing.F) {
	f.Add(header("t1"))
	f.Add([]byte(`{"namespace":"a","deployment":"b","tenant":"c","scale":{"maxInstances":1},"oneshot":true}`))
	f.Add([]byte(`{`))
	c := NewCache(64)
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, wantErr := fn.Parse(raw)
		for range 2 {
			got, err := c.parse(raw)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error is %v, want %v", err, wantErr)
			}
			if err == nil {
				if diff := cmp.Diff(want, got.Spec, protocmp.Transform()); diff != "" {
					t.Fatalf("function (-want +got):\n%s", diff)
				}
			}
		}
	})
}
