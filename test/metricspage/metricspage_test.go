package metricspage

import "testing"

func TestTable(t *testing.T) {
	got, err := table(`# HELP skipper_b_total Things that b did, by outcome.
# TYPE skipper_b_total counter
skipper_b_total{outcome="good"} 1
skipper_b_total{kind="x",outcome="bad"} 0
# HELP go_goroutines A library's.
# TYPE go_goroutines gauge
go_goroutines 7
# HELP skipper_a Something.
# TYPE skipper_a gauge
skipper_a 1
`)
	const want = `
| name | type | labels | meaning |
| --- | --- | --- | --- |
| ` + "`skipper_a`" + ` | gauge |  | Something. |
| ` + "`skipper_b_total`" + ` | counter | kind, outcome | Things that b did, by outcome. |

`
	if err != nil || got != want {
		t.Errorf("table is %q, %v", got, err)
	}
	if _, err := table("no metric at all {"); err == nil {
		t.Error("text that holds no metrics was taken")
	}
}
