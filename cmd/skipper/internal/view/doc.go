// Package view turns what controllers and Kubernetes report into what an
// operator sees: values with the names that programs read, and the tables and
// sheets that people read. It does no I/O, and takes the time as a value.
package view
