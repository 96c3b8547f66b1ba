package embedded_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// countOf returns the number in a variable of the environment; make crash sets it.
func countOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}

	n, err := strconv.Atoi(text)
	must(t, err)

	return n
}

// A process is killed at any moment, again and again on the same folder: each message that it
// printed is there, whole and in order.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir, printed := t.TempDir(), map[int]int64{}
	kills, sum := countOf(t, "KILLS", 6), 0
	for range kills {
		sum += killWriters(t, dir, rand.N(300*time.Millisecond), printed)
		checkWriters(t, dir, printed)
		if t.Failed() {
			return
		}
	}

	if sum == 0 {
		t.Errorf("the processes printed nothing in %d runs, want some messages", kills)
	}

	t.Logf("%d kills, %d messages", kills, sum)
}

// killWriters starts the writers, and kills them some time after their start, in one of four runs,
// or after their first message. It notes the last number of each lane, and returns how many were
// printed.
func killWriters(t *testing.T, dir string, after time.Duration, printed map[int]int64) (sum int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+dir)
	var failure bytes.Buffer
	child.Stderr = &failure
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())

	lines, first := bufio.NewReader(out), ""
	if rand.IntN(4) > 0 {
		if first, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the writers ended at once: %v: %s", child.Wait(), failure.String())
		}
	} else {
		after /= 10
	}

	killing := time.AfterFunc(after, func() { _ = child.Process.Kill() })
	defer killing.Stop()
	rest, err := io.ReadAll(lines)
	must(t, err)
	_ = child.Wait() // it was killed
	if failure.Len() > 0 {
		t.Fatalf("the writers failed: %s", failure.String())
	}

	return notePrinted(first+string(rest), printed)
}

// notePrinted notes the last number of each lane. A line that was cut off does not count.
func notePrinted(text string, printed map[int]int64) (sum int) {
	for _, line := range bytes.SplitAfter([]byte(text), []byte("\n")) {
		var lane int
		var n int64
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}

		if _, err := fmt.Sscanf(string(line), "%d %d\n", &lane, &n); err == nil {
			printed[lane] = max(printed[lane], n)
			sum++
		}
	}

	return sum
}
