// Package browser runs a headless Chromium for a test of web pages, and leaves
// nothing of it behind, however the test ends. Its files need the build tag
// e2e, like the tests that use it.
package browser
