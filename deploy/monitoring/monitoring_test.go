package monitoring_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	return rulesOf(t, read(t, "rules.yaml"))
}

// rulesOf are those of a PrometheusRule.
func rulesOf(t *testing.T, text []byte) (all []rule) {
	t.Helper()
	var file struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Spec.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 15 {
		t.Fatalf("only %d alerts found: they are read wrongly", len(all))
	}
	return all
}

// expressions are those of a dashboard, with Grafana's variables filled in.
func expressions(t *testing.T, file string) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, file), &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, p := range board.Panels {
		if p.Title == "" || p.Description == "" {
			t.Errorf("%s: panel %q does not say what it shows", file, p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "5m", "$namespace", "n", "$deployment", "d").Replace(target.Expr))
		}
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// known are Skipper's metrics and their labels, as its own tests pin them.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(skipper_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(read(t, "../../docs/metrics.md")), -1) {
		all[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	if len(all) < 60 {
		t.Fatalf("only %d metrics found: they are read wrongly", len(all))
	}
	return all
}

// foreign are metrics of others that the dashboards show.
var foreign = []string{
	"process_resident_memory_bytes", "kube_pod_info", "kube_pod_container_status_restarts_total",
	"container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
}

// scraped are labels that Prometheus itself gives to whatever it scrapes.
var scraped = []string{labels.MetricName, "pod", "namespace", "instance", "job", "le"}

// faults are what is wrong with an expression.
func faults(known map[string][]string, expr string) (all []string) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	for _, selectors := range parser.ExtractSelectors(parsed) {
		i := slices.IndexFunc(selectors, func(m *labels.Matcher) bool { return m.Name == labels.MetricName })
		if i < 0 {
			all = append(all, "selects without a name")
			continue
		}
		if slices.Contains(foreign, selectors[i].Value) {
			continue
		}
		name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(selectors[i].Value, "")
		has, ok := known[name]
		if !ok {
			all = append(all, "there is no metric "+selectors[i].Value)
			continue
		}
		for _, m := range selectors {
			if !slices.Contains(has, m.Name) && !slices.Contains(scraped, m.Name) {
				all = append(all, name+" has no label "+m.Name)
			}
		}
	}
	return all
}

func TestExpressionsNameWhatExists(t *testing.T) {
	known := known(t)
	check := func(where, expr string) {
		for _, fault := range faults(known, expr) {
			t.Errorf("%s: %s: %s", where, expr, fault)
		}
	}
	for _, r := range rules(t) {
		check(r.Alert, r.Expr)
	}
	for _, board := range []string{"dashboards/fleet.json", "dashboards/function.json"} {
		all := expressions(t, board)
		if len(all) < 6 {
			t.Errorf("%s shows only %d things", board, len(all))
		}
		for _, expr := range all {
			check(board, expr)
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	known := map[string][]string{"skipper_a_total": {"reason"}}
	for expr, want := range map[string]bool{
		`rate(skipper_a_total{reason="x"}[5m])`: false,
		`rate(skipper_a_total{code="x"}[5m])`:   true,
		`skipper_b`:                             true,
		`rate(skipper_a_total)`:                 true,
		`{reason="x"}`:                          true,
		`kube_pod_info`:                         false,
	} {
		if got := faults(known, expr); (len(got) > 0) != want {
			t.Errorf("faults of %s are %v", expr, got)
		}
	}
}

// What docs/runbooks.md has operators run gives each alert a whole address, and
// changes nothing else.
func TestRunbooksMoveToAnAddress(t *testing.T) {
	command := regexp.MustCompile(`sed '(s\|.*\|(.*)\|)'`).FindStringSubmatch(string(read(t, "../../docs/runbooks.md")))
	if command == nil {
		t.Fatal("docs/runbooks.md has no sed command that sets the address")
	}
	address, ok := strings.CutPrefix(command[2], "runbook_url: https://")
	if !ok {
		t.Fatalf("%q sets no address", command[1])
	}
	out, err := exec.CommandContext(t.Context(), "sed", command[1], "rules.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	plain, moved := rules(t), rulesOf(t, out)
	for i := range plain {
		if want := "https://" + address + "#" + strings.ToLower(plain[i].Alert); moved[i].Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", plain[i].Alert, moved[i].Annotations["runbook_url"], want)
		}
		moved[i].Annotations["runbook_url"] = plain[i].Annotations["runbook_url"]
	}
	if !reflect.DeepEqual(moved, plain) {
		t.Errorf("more than the addresses changed: %v, before %v", moved, plain)
	}
}

// Somebody is woken by an alert: it says what is wrong, and where to read on.
func TestEveryAlertHasItsPage(t *testing.T) {
	pages := map[string]string{}
	for _, section := range strings.Split(string(read(t, "../../docs/runbooks.md")), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		pages[title] = text
	}
	for _, r := range rules(t) {
		page, ok := pages[r.Alert]
		delete(pages, r.Alert)
		for _, part := range []string{"**Meaning.**", "**First look.**", "**Fix.**"} {
			if !ok || !strings.Contains(page, part) {
				t.Errorf("docs/runbooks.md has no %s for %s", part, r.Alert)
			}
		}
		if want := "docs/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if s := r.Labels["severity"]; r.Annotations["summary"] == "" || s != "page" && s != "ticket" {
			t.Errorf("%s: summary %q, severity %q", r.Alert, r.Annotations["summary"], s)
		}
	}
	for title := range pages {
		t.Errorf("docs/runbooks.md speaks of %s, which is no alert", title)
	}
}
