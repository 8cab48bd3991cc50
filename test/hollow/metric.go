package hollow

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric reads a counter or gauge of the part of Skipper whose web port is at
// that URL, by the values of one of its labels; without that label, its value is
// that of "".
func Metric(ctx context.Context, web, name, label string) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, web+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", web, err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", web, err)
	}
	out := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		key := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				key = l.GetValue()
			}
		}
		out[key] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return out, nil
}
