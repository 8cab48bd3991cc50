//go:build e2e

package browser

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"
)

// programs are tried in this order. The first is what Debian's command of that
// name starts by a shell, which would be killed in place of the browser.
var programs = []string{"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell", "chromium", "google-chrome"}

// Start gives a context for chromedp.Run, whose first call starts a browser of
// its own with a window of width times height pixels. It fails the test where
// none is installed. All processes of the browser have ended, and its files are
// gone, when the test has; if the test's process dies first, they end as well.
func Start(t testing.TB, width, height int) context.Context {
	t.Helper()
	program, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	// Children of a browser that ended become this process's, which can wait for them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatalf("become the parent of orphans: %v", err)
	}
	files := t.TempDir()
	var main *exec.Cmd
	alloc, end := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.WindowSize(width, height), chromedp.ExecPath(program),
		chromedp.UserDataDir(files), chromedp.Env("TMPDIR="+files),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			main = cmd
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		}))...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		group := 0
		if main != nil && main.Process != nil {
			group = main.Process.Pid
			kill(group)
		}
		cancel()
		end()
		chromedp.FromContext(ctx).Allocator.Wait() // who waits for the first process, so that nobody else may
		if err := wait(group); err != nil {
			t.Errorf("wait for the browser's processes: %v", err)
		}
	})
	return ctx
}

func installed() (string, error) {
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %v is installed: in Debian, apt-get install chromium-headless-shell", programs)
}

// kill ends the processes of a group; one without any is none that matters.
func kill(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }

// wait returns when a group has no process any more; zero is none. They are
// children of this process, or become that before their parent can be waited for.
func wait(group int) error {
	for group != 0 {
		_, err := syscall.Wait4(-group, nil, 0, nil)
		if errors.Is(err, syscall.ECHILD) {
			break
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	if group != 0 && !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		return fmt.Errorf("group %d goes on under another parent", group)
	}
	return nil
}
