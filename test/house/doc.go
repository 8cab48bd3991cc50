// Package house holds the rules of this repository as tests: who may import
// whom, how long a function may be, that every package says what it is for.
package house
