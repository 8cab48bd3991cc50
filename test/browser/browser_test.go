//go:build e2e

package browser

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"
)

// doomed has this program, when it is set, start a browser and wait to be killed.
const doomed = "SKIPPER_TEST_DOOMED"

// open starts the browser and returns its group.
func open(t *testing.T) int {
	t.Helper()
	ctx := Start(t, 300, 200)
	var title string
	if err := chromedp.Run(ctx, chromedp.Navigate("data:text/html,<title>here</title>"), chromedp.Title(&title)); err != nil || title != "here" {
		t.Fatalf("the page is %q, %v", title, err)
	}
	return chromedp.FromContext(ctx).Browser.Process().Pid
}

func TestBrowserEndsWithItsTest(t *testing.T) {
	var group int
	t.Run("test", func(t *testing.T) {
		group = open(t)
		if err := syscall.Kill(-group, 0); err != nil {
			t.Errorf("the browser has no group of its own: %v", err)
		}
	})
	if err := syscall.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after its test, group %d of the browser: %v", group, err)
	}
}

// A test that is killed cleans up nothing.
func TestBrowserEndsWithItsProcess(t *testing.T) {
	if os.Getenv(doomed) != "" {
		fmt.Println("group", open(t))
		<-t.Context().Done()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), doomed+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	group, atoi := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "group ")))
	if atoi != nil {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	stuck := time.AfterFunc(time.Minute, func() {
		t.Errorf("the browser's group %d goes on without its test", group)
		kill(group)
	})
	defer stuck.Stop()
	if err := wait(group); err != nil {
		t.Error(err)
	}
}
