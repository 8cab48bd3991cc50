// Package story holds docs/story.md, an evening with the command line, to the
// programs. The page is its own script: below each mark
//
//	<!-- recorded until="2/2" -->
//
// stands a block whose first line is a command, and whose other lines are what
// it printed. With -record the test runs the commands in their order on the local
// cluster and writes down what they print, and takes the pictures that the page
// marks in the same way; nobody edits either by hand. Without, it runs them too,
// and sees that each ends as it did and prints the columns that it printed then.
//
//	KUBECONFIG=$(skipper-local kubeconfig) go test -tags e2e -count=1 -run Story ./test/story [-record]
//
// It takes about four minutes, for it waits for scaling, for requests that are slow
// on purpose, and for the end of a function that nobody uses any more. What can be
// told without a cluster, a plain test tells: that the page can be read and is whole.
package story
