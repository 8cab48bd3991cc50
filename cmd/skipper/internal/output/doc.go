// Package output prints what commands found: tables and sheets for people, JSON
// and YAML for programs.
//
// Texts that come from a cluster may hold anything. What could move a
// terminal's cursor or pass for another row is written as an escape.
package output
