package cluster

import "context"

// Status is one component as a person wants to see it: State is "healthy", "not running", or
// the reason why it is not well.
type Status struct {
	Name  string
	State string
}

// Status looks at every component once.
func (c *Cluster) Status(ctx context.Context) []Status {
	api, clientErr := c.Node.client()
	var all []Status
	for _, name := range startOrder() {
		s := Status{Name: name, State: "healthy"}
		switch _, running := c.table.Running(name); {
		case !running:
			s.State = "not running"
		case clientErr != nil:
			s.State = clientErr.Error()
		default:
			if err := c.probe(ctx, api, c.Node.component(name)); err != nil {
				s.State = err.Error()
			}
		}
		all = append(all, s)
	}
	return all
}
