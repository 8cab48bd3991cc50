package claim

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what became of one claim patch.
type Outcome int

// The outcomes.
const (
	// Won: the pod is ours.
	Won Outcome = iota
	// LostRace: somebody else claimed or changed it first; try another pod.
	LostRace
	// LostDeleting: the patch went through, but the pod was being deleted
	// already; try another pod.
	LostDeleting
	// Gone: the pod does not exist any more; try another pod.
	Gone
	// Refused: the API server will refuse the same for any pod.
	Refused
	// Unclear: no answer, or one that says nothing about the pod; the claim
	// may have been written. Try again later.
	Unclear
)

var outcomeNames = [...]string{"won", "lost_race", "lost_deleting", "gone", "refused", "unclear"}

// String is the outcome's name in logs and metrics.
func (o Outcome) String() string { return outcomeNames[o] }

// Verdict is an Outcome with what led to it.
type Verdict struct {
	Outcome Outcome
	Reason  string
}

// Judge tells from the API server's reply to a claim patch what became of it.
func Judge(reply *corev1.Pod, err error) Verdict {
	switch {
	case err == nil && reply.DeletionTimestamp != nil:
		return Verdict{LostDeleting, "the ReplicaSet had deleted the pod"}
	case err == nil:
		return Verdict{Won, "claimed"}
	case apierrors.IsNotFound(err):
		return Verdict{Gone, "the pod does not exist any more"}
	case testFailed(err):
		return Verdict{LostRace, "the pod was claimed or changed by another"}
	case isRefusal(err):
		return Verdict{Refused, "the API server refuses the claim: " + err.Error()}
	}
	return Verdict{Unclear, "the API server gave no clear answer: " + err.Error()}
}

// testFailed recognises a failed test operation. API servers answer 422 without
// naming an object or a field, which tells it apart from an invalid object;
// some versions answer 409, or 500 with the text of the patch library.
func testFailed(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	for _, text := range testFailedTexts {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	status, ok := statusOf(err)
	return ok && status.Code == http.StatusUnprocessableEntity && !namesField(status)
}

// testFailedTexts are how the patch library words a test that fails, that is
// about a missing parent, and that is about an index past a list's end.
var testFailedTexts = [...]string{"test failed", "test operation does not apply", "error in test for path"}

func namesField(s metav1.Status) bool {
	return s.Details != nil && (s.Details.Kind != "" || len(s.Details.Causes) > 0)
}

// isRefusal says that the same request will be refused for any pod.
func isRefusal(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	status, ok := statusOf(err)
	return ok && status.Code >= 400 && status.Code < 500 && status.Code != http.StatusTooManyRequests && status.Code != http.StatusRequestTimeout
}

func statusOf(err error) (metav1.Status, bool) {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return metav1.Status{}, false
	}
	return s.Status(), true
}
