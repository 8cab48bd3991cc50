package hollow

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric reads a counter or gauge of the controller, by the values of one of its
// labels; without that label, its value is that of "".
func (c *Controller) Metric(ctx context.Context, name, label string) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Web()+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", c.Addr(), err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", c.Addr(), err)
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
