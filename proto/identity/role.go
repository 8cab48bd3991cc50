package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// Role is what a part of Skipper is, and thereby what it may do.
type Role string

// The roles. Routers of other make that speak the contract are Extproc.
const (
	Controller Role = "controller"
	Extproc    Role = "extproc"
	Envoy      Role = "envoy"
	Operator   Role = "operator"
)

// Roles are all roles, sorted.
func Roles() []Role { return []Role{Controller, Envoy, Extproc, Operator} }

// scheme begins the URI of every role.
const scheme = "skipper"

// URI is the subject alternative name of the role.
func (r Role) URI() string { return scheme + "://" + string(r) }

// Why a peer is refused.
var (
	// ErrNoCertificate is a peer that showed none.
	ErrNoCertificate = errors.New("no certificate was shown: it needs one of Skipper's authority")
	// ErrRole is a certificate that names no role, several, or the wrong one.
	ErrRole = errors.New("certificate does not name the role")
)

// RoleOf reads the role out of a certificate, which must be verified already.
func RoleOf(c *x509.Certificate) (Role, error) {
	var found []string
	for _, u := range c.URIs {
		if u.Scheme == scheme {
			found = append(found, u.String())
		}
	}
	if len(found) == 1 {
		for _, r := range Roles() {
			if found[0] == r.URI() {
				return r, nil
			}
		}
	}
	return "", fmt.Errorf("%w: want exactly one URI like %s, found %q", ErrRole, Controller.URI(), found)
}

// check is nil if the role of c is among those allowed.
func check(c *x509.Certificate, allowed []Role) error {
	r, err := RoleOf(c)
	if err != nil {
		return err
	}
	if !slices.Contains(allowed, r) {
		return fmt.Errorf("%w: it is %s, want one of %v", ErrRole, r, allowed)
	}
	return nil
}
