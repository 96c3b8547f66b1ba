package embedded_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runWithFault runs the writers while strace lets a system call on the file fail, and kills them
// after a number of messages. It returns the lines.
func runWithFault(t *testing.T, dir, inject string, messages int) (printed []string) {
	t.Helper()
	child := exec.Command("strace", "-f", "-qq", "-o", filepath.Join(t.TempDir(), "record"),
		"-P", filepath.Join(dir, "weir.db"), "-e", "signal=none", "-e", "inject="+inject,
		os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	scanner, isKilled := bufio.NewScanner(out), false
	for scanner.Scan() {
		printed = append(printed, scanner.Text())
		if n := len(printed) - countPrefix(printed, "error"); n >= messages && !isKilled {
			must(t, killOwner(dir))
			isKilled = true
		}
	}

	_ = child.Wait()

	return printed
}

func countPrefix(lines []string, prefix string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}

	return n
}

// If the disk is full, writes fail as not done, with a text that says so. When there is space
// again, the same store goes on, and nothing is lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeStore(t, dir)
	lines := runWithFault(t, dir, "pwrite64:error=ENOSPC:when=40..45", 100)

	full := countPrefix(lines, "error: the disk is full")
	if full == 0 || countPrefix(lines, "error:") != full {
		t.Errorf("got the errors %q, want some, all of a full disk", lines)
	}

	if n := countPrefix(lines, "broken"); n > 0 {
		t.Errorf("the store broke: %q", lines)
	}

	noted := map[int]int64{}
	if sum := notePrinted(strings.Join(lines, "\n")+"\n", noted); sum < 60 {
		t.Errorf("got %d messages, want 60 at least, because the store goes on", sum)
	}

	checkWriters(t, dir, noted)
}

// If the disk fails in a sync, the write is not done, or the store breaks because only the disk
// knows whether it is. Nothing that was printed is lost.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	isBroken := false
	for _, inject := range []string{"fdatasync:error=EIO:when=11", "fdatasync:error=EIO:when=12",
		"fdatasync:error=EIO:when=13", "fdatasync:error=EIO:when=14"} {
		dir := t.TempDir()
		makeStore(t, dir)
		lines := runWithFault(t, dir, inject, 60)
		if countPrefix(lines, "error:")+countPrefix(lines, "broken:") == 0 {
			t.Errorf("%s: got %q, want an error", inject, lines)
		}

		isBroken = isBroken || countPrefix(lines, "broken: the disk failed") > 0
		noted := map[int]int64{}
		notePrinted(strings.Join(lines, "\n")+"\n", noted)
		checkWriters(t, dir, noted)
	}

	if !isBroken {
		t.Error("the store never broke, want it to break if the last sync of a commit fails")
	}
}
