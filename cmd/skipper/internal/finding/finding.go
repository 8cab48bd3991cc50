// Package finding is what a check of a cluster comes to: what is wrong, why it
// matters and what to do about it.
package finding

import (
	"cmp"
	"slices"
)

// Severity orders findings by how soon somebody should act.
type Severity string

// The severities, most urgent first.
const (
	// Problem: requests fail, or a promise of Skipper does not hold.
	Problem Severity = "problem"
	// Warning: works, but not for long or not well.
	Warning Severity = "warning"
	// Unknown: could not be checked.
	Unknown Severity = "unknown"
)

func rank(s Severity) int { return slices.Index([]Severity{Problem, Warning, Unknown}, s) }

// Finding is one result. All fields are sentences or names for people; Check
// and Severity are stable words for programs.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check that it comes from, one word.
	Check string `json:"check"`
	// Subject is the thing that is wrong, as kind and name.
	Subject string `json:"subject"`
	What    string `json:"what"`
	Why     string `json:"why"`
	Do      string `json:"do"`
}

// Sort puts the most urgent first, and what belongs together side by side.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.What, b.What))
	})
}

// Any tells whether one of them has the severity.
func Any(all []Finding, s Severity) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == s })
}
