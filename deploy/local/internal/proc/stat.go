package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stat is the part of /proc/PID/stat that tells processes apart.
type stat struct {
	Ended   bool
	Started uint64
}

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(content))
}

// parseStat reads the state (field 3) and the start time (field 22, clock ticks since boot).
// The second field is the program's name in parentheses and may itself hold spaces and ")".
func parseStat(content string) (stat, error) {
	const stateField, startField = 0, 19 // counted from the field after the name
	at := strings.LastIndexByte(content, ')')
	if at < 0 {
		return stat{}, errors.New("process state without a name")
	}
	fields := strings.Fields(content[at+1:])
	if len(fields) <= startField {
		return stat{}, errors.New("process state cut short")
	}
	started, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read start time: %w", err)
	}
	state := fields[stateField]
	return stat{Ended: state == "Z" || state == "X", Started: started}, nil
}

// Marked returns the living processes that carry this table's mark, recorded or not, apart
// from the calling one.
func (t Table) Marked() []int {
	entries, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	var pids []int
	for _, path := range entries {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(path)
		if err == nil && hasMark(environ, t.Mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hasMark(environ []byte, mark string) bool {
	want := []byte(markName + "=" + mark)
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(variable, want) {
			return true
		}
	}
	return false
}
