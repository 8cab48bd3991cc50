package replicas

import (
	"testing"
	"time"
)

func TestVigil(t *testing.T) {
	answered := round{heard: true, probed: true}
	probed, silent := round{probed: true}, round{}
	late := round{late: DefaultProbe/lateShare + 1}
	lateProbed := round{probed: true, late: time.Hour}
	stuck := round{stuck: true}
	for name, row := range map[string]struct {
		rounds []round
		dead   bool
		probe  bool // wants another probe
	}{
		"healthy":                            {[]round{answered, answered, answered, answered, answered}, false, true},
		"silent":                             {[]round{answered, probed, probed, silent}, true, false},
		"almost silent":                      {[]round{probed, probed}, false, false},
		"one probe missed":                   {[]round{probed, answered, probed, answered}, false, true},
		"only two in a row, again and again": {[]round{probed, probed, answered, probed, probed, answered}, false, true},
		"anything is a sign of life":         {[]round{probed, probed, {heard: true}}, false, true},
		"no probe could be written":          {[]round{silent, silent, silent, silent, silent}, false, true},
		"a write hangs":                      {[]round{stuck, stuck, stuck}, true, true},
		"we were stopped":                    {[]round{probed, probed, late, late, late, late}, false, false},
		"stopped with the first probe":       {[]round{lateProbed, lateProbed, silent}, false, false},
		"stopped once, and dead":             {[]round{lateProbed, probed, silent, silent}, true, false},
		"late but not by much":               {[]round{probed, probed, {late: DefaultProbe / lateShare}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var v vigil
			var d verdict
			for i, r := range row.rounds {
				if d.dead {
					t.Fatalf("dead before round %d", i)
				}
				v, d = v.after(r, DefaultProbe)
			}
			if d.dead != row.dead || v.wantsProbe() != row.probe {
				t.Errorf("dead %v (%s), wants a probe %v; want %v, %v", d.dead, d.why, v.wantsProbe(), row.dead, row.probe)
			}
		})
	}
}
