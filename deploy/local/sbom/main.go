// Command sbom prints what a Go program is made of, as CycloneDX JSON.
package main

import (
	"fmt"
	"os"

	"skipper/deploy/local/internal/sbom"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	text, err := sbom.Of(os.Args[1])
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
