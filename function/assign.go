package function

import (
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"skipper/function/token"
)

// Why an assignment is refused; statusOf turns it into the answer.
var (
	errMethod   = errors.New("method not allowed")
	errRequest  = errors.New("bad assignment")
	errToken    = errors.New("token refused")
	errConflict = errors.New("assigned already")
	errCallback = errors.New("assignment was not taken up")
	errKeys     = errors.New("public keys unreadable")
)

func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errRequest):
		return http.StatusBadRequest
	case errors.Is(err, errToken):
		return http.StatusUnauthorized
	case errors.Is(err, errConflict):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// serveAssign answers an assignment: 200 accepted (or accepted before), 400 headers or JSON, 401 token, 405 method,
// 409 another assignment, 500 OnAssign or the key files. The body is not waited for.
func (p *Pod) serveAssign(w http.ResponseWriter, r *http.Request) {
	a, err := p.assignment(r)
	if err == nil {
		err = p.accept(r.Context(), a)
	}
	p.logOutcome(a, err)
	if errors.Is(err, errMethod) {
		w.Header().Set("Allow", http.MethodPost)
	}
	if err != nil {
		answerText(w, r, statusOf(err), err.Error()+"\n")
		return
	}
	answerText(w, r, http.StatusOK, "assigned\n")
}

func (p *Pod) logOutcome(a Assignment, err error) {
	fields := []zap.Field{
		zap.String("namespace", a.Function.Namespace), zap.String("deployment", a.Function.Deployment),
		zap.String("tenant", a.Function.Tenant), zap.Bool("oneshot", a.Function.Oneshot),
		zap.Int("status", statusOf(err)),
	}
	if err != nil {
		p.log.Warn("assignment refused", append(fields, zap.Error(err))...)
		return
	}
	p.log.Info("assignment accepted", fields...)
}

// assignment reads and verifies a request; the pod's state does not matter yet.
func (p *Pod) assignment(r *http.Request) (Assignment, error) {
	if r.Method != http.MethodPost {
		return Assignment{}, fmt.Errorf("%w: assignments are posted, not %q", errMethod, r.Method)
	}
	signed, err := single(r.Header, HeaderToken, token.MaxLength)
	if err != nil {
		return Assignment{}, err
	}
	text, err := single(r.Header, HeaderFunction, MaxFunctionBytes)
	if err != nil {
		return Assignment{}, err
	}
	claims, err := p.verify(signed, text)
	if err != nil {
		return Assignment{}, err
	}
	return p.assignmentFor(claims, text)
}

// verify returns the token's claims once it has proved to be for this pod and this function text. With AcceptAnyToken
// there are none.
func (p *Pod) verify(signed, text string) (token.Claims, error) {
	if p.cfg.AcceptAnyToken {
		return token.Claims{}, nil
	}
	keys, err := p.cfg.keys()
	if err != nil {
		return token.Claims{}, fmt.Errorf("%w: %w", errKeys, err)
	}
	claims, err := token.Parse(keys, signed)
	if err == nil {
		err = claims.CheckTime(p.cfg.now(), token.Leeway)
	}
	if err == nil {
		err = claims.CheckTarget(token.Target{Pod: p.cfg.PodName, UID: p.cfg.PodUID, Function: text})
	}
	if err != nil {
		return token.Claims{}, fmt.Errorf("%w: %w", errToken, err)
	}
	return claims, nil
}

func (p *Pod) assignmentFor(claims token.Claims, text string) (Assignment, error) {
	f, err := ParseFunction([]byte(text))
	if err != nil {
		return Assignment{}, fmt.Errorf("%w: header %s: %w", errRequest, HeaderFunction, err)
	}
	if p.cfg.AcceptAnyToken {
		return Assignment{Function: f, PodName: p.cfg.PodName, PodUID: p.cfg.PodUID}, nil
	}
	if claims.Tenant != f.Tenant {
		return Assignment{}, fmt.Errorf("%w: token is for tenant %q, the function for %q", errToken, claims.Tenant, f.Tenant)
	}
	return Assignment{Function: f, PodName: claims.Pod, PodUID: claims.UID}, nil
}

// single returns a header that must be there once, not empty and not longer than limit.
func single(h http.Header, name string, limit int) (string, error) {
	values := h[name]
	switch {
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("%w: header %s is missing", errRequest, name)
	case len(values) > 1:
		return "", fmt.Errorf("%w: header %s stands there %d times", errRequest, name, len(values))
	case len(values[0]) > limit:
		return "", fmt.Errorf("%w: header %s has %d bytes, at most %d are allowed", errRequest, name, len(values[0]), limit)
	}
	return values[0], nil
}
