package trust

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"skipper/proto/fn"
)

// everyListener stands for all listeners in the list of those that want
// signatures.
const everyListener = "*"

// firstListener is the name of Envoy's first listener, which it leaves out where
// there is no other.
const firstListener = "ingress"

// listenerName is what a listener may be called.
var listenerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Rules say what each listener lets through. The zero value lets everything
// through. Immutable, safe for concurrent use.
type Rules struct {
	general   *rule
	listeners map[string]*rule
}

// rule is what holds on a listener.
type rule struct {
	signed bool
	// limited says that only what is listed is let through.
	limited     bool
	namespaces  map[string]bool
	deployments map[deployment]bool
}

type deployment struct{ namespace, name string }

// free is the rule where there is none.
var free = &rule{}

func (r Rules) of(listener string) *rule {
	if listener == "" {
		listener = firstListener
	}
	if own := r.listeners[listener]; own != nil {
		return own
	}
	if r.general != nil {
		return r.general
	}
	return free
}

func (r *rule) allows(k fn.Key) bool {
	return !r.limited || r.namespaces[k.Namespace] || r.deployments[deployment{k.Namespace, k.Deployment}]
}

// ParseRules reads flags. An entry of namespaces is "namespace", of deployments
// "namespace/deployment" or "namespace/*"; "listener=" in front makes it one of
// that listener's own, which take the place of the general ones there. What any
// of the entries names is let through; without entries, everything is. signed
// names the listeners that want tokens, "*" for all. The error reports all that
// cannot be read, each with its flag.
func ParseRules(namespaces, deployments, signed []string) (Rules, error) {
	p := &parser{general: &rule{}, own: map[string]*rule{}, signed: map[string]bool{}}
	for _, e := range namespaces {
		p.namespace(e)
	}
	for _, e := range deployments {
		p.deployment(e)
	}
	for _, l := range signed {
		p.require(l)
	}
	return p.rules(), errors.Join(p.errs...)
}

type parser struct {
	general *rule
	own     map[string]*rule
	signed  map[string]bool
	errs    []error
}

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// split takes the listener off an entry and returns the rule that it belongs to.
func (p *parser) split(flag, entry string) (*rule, string) {
	listener, rest, found := strings.Cut(entry, "=")
	if !found {
		return p.general, entry
	}
	if !listenerName.MatchString(listener) {
		p.fail("--%s: %q is no name of a listener: use lower-case letters, digits, - and _", flag, listener)
		return &rule{}, rest
	}
	return p.listener(listener), rest
}

func (p *parser) listener(name string) *rule {
	if p.own[name] == nil {
		p.own[name] = &rule{}
	}
	return p.own[name]
}

func (p *parser) namespace(entry string) {
	const flag = "allow-namespaces"
	r, name := p.split(flag, entry)
	if bad := validation.IsDNS1123Label(name); bad != nil {
		p.fail("--%s: %q is no namespace: %s", flag, name, bad[0])
		return
	}
	r.open(name)
}

func (p *parser) deployment(entry string) {
	const flag = "allow-deployments"
	r, text := p.split(flag, entry)
	namespace, name, found := strings.Cut(text, "/")
	switch {
	case !found || validation.IsDNS1123Label(namespace) != nil:
		p.fail("--%s: %q is not namespace/deployment or namespace/*", flag, text)
	case name == "*":
		r.open(namespace)
	case validation.IsDNS1123Subdomain(name) != nil:
		p.fail("--%s: %q is no deployment: give its whole name, or * for all of the namespace", flag, name)
	default:
		r.limited = true
		if r.deployments == nil {
			r.deployments = map[deployment]bool{}
		}
		r.deployments[deployment{namespace, name}] = true
	}
}

func (r *rule) open(namespace string) {
	r.limited = true
	if r.namespaces == nil {
		r.namespaces = map[string]bool{}
	}
	r.namespaces[namespace] = true
}

func (p *parser) require(listener string) {
	if listener != everyListener {
		if !listenerName.MatchString(listener) {
			p.fail("--require-signed-function: %q is no name of a listener: use lower-case letters, digits, - and _, or * for all", listener)
			return
		}
		p.listener(listener)
	}
	p.signed[listener] = true
}

// rules completes what each listener has of its own with what is general.
func (p *parser) rules() Rules {
	p.general.signed = p.signed[everyListener]
	for name, r := range p.own {
		r.signed = p.signed[everyListener] || p.signed[name]
		if !r.limited {
			r.limited, r.namespaces, r.deployments = p.general.limited, p.general.namespaces, p.general.deployments
		}
	}
	return Rules{general: p.general, listeners: p.own}
}

// Signed reports whether any listener wants tokens.
func (r Rules) Signed() bool {
	if r.general != nil && r.general.signed {
		return true
	}
	for _, own := range r.listeners {
		if own.signed {
			return true
		}
	}
	return false
}
