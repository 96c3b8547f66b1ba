package simulation_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// readNumber returns the number in an environment variable. If the variable is not set, it returns the parameter
// "otherwise".
func readNumber(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// runWorlds runs seeds of a kind of worlds, and returns the sum of their counts. The environment variable named env has
// the number of seeds; the parameter "otherwise" is the default. The variable <env>_FROM has the first seed, and STEP
// the distance from one seed to the next. If STOP is set, the first failure ends the run. If <env>_TRACE is set, each
// failure prints its trace.
func runWorlds(t *testing.T, env string, otherwise uint64, draw func(*dice) settings) (sum counts) {
	t.Helper()
	seeds, from, step := readNumber(t, env, otherwise), readNumber(t, env+"_FROM", 1), readNumber(t, "STEP", 1)
	began := time.Now()
	for i := range seeds {
		seed := from + i*step
		o := runSettings(t, seed, os.Getenv("MUTANT"), draw)
		sum.addAll(o.counts)
		if o.violation == nil {
			continue
		}
		t.Errorf("seed %d: %s: %.2000s", seed, o.violation.kind, o.violation.text)
		if os.Getenv(env+"_TRACE") != "" {
			fmt.Println(o.trace)
		}
		if os.Getenv("STOP") != "" {
			break
		}
	}
	t.Logf("%d seeds in %s: %+v", seeds, time.Since(began).Round(time.Millisecond), sum)
	return sum
}

// TestSeeds runs SEEDS seeds from FROM on, each STEP further than the last, until five have failed, or one if STOP is
// set. By default it runs 300.
func TestSeeds(t *testing.T) {
	seeds, from, step := readNumber(t, "SEEDS", 300), readNumber(t, "FROM", 1), readNumber(t, "STEP", 1)
	began, told := time.Now(), time.Now()
	var sum counts
	failed := 0
	for i := range seeds {
		seed := from + i*step
		o := runSeed(t, seed, os.Getenv("MUTANT"))
		sum.addAll(o.counts)
		if o.violation != nil {
			failed++
			t.Errorf("seed %d: %s: %s", seed, o.violation.kind, o.violation.text)
			if failed == 5 || os.Getenv("STOP") != "" {
				break
			}
		}
		if time.Since(told) > 30*time.Second {
			told = time.Now()
			fmt.Printf("%d of %d seeds, %s\n", i+1, seeds, time.Since(began).Round(time.Second))
		}
	}
	t.Logf("%d seeds in %s: %+v", seeds, time.Since(began).Round(time.Millisecond), sum)
}

// A seed is run at most maxReplays times, until two of its runs are the same. A run has up to three places at which Go
// chooses by chance, and so up to eight different courses. Among nine runs at least two are then the same; twelve leave
// some room.
const maxReplays = 12

// TestSeeds_ReplayExactly checks that two runs of a seed are the same, with each event at the same nanosecond.
//
// The race detector shuffles goroutines on purpose, so the test starts a process without it. Even there a select
// chooses by chance if two of its cases became ready in one nanosecond, and a busy machine interrupts goroutines
// between two events of one nanosecond. So one seed in ten may need more than two runs.
func TestSeeds_ReplayExactly(t *testing.T) {
	if os.Getenv("REPLAY") == "" {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestSeeds_ReplayExactly$",
			"weir/internal/simulation")
		cmd.Env = append(os.Environ(), "REPLAY=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("repeat the seed in another process: %v\n%s", err, out)
		}
		return
	}
	const seeds, most = 120, 12
	interrupted := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		tries, differs := replaySeed(t, seed)
		switch {
		case tries > maxReplays:
			t.Errorf("seed %d differs each time: %s", seed, differs)
		case tries > 2:
			interrupted++
			t.Logf("seed %d needed %d tries: %s", seed, tries, differs)
		}
	}
	if interrupted > most {
		t.Errorf("%d of %d seeds did not replay at once", interrupted, seeds)
	}
}

// replaySeed runs a seed until two of its runs are the same, but at most maxReplays times. It returns the number of
// runs, or maxReplays + 1 if no two runs were the same. It also returns the first difference between two runs.
func replaySeed(t *testing.T, seed uint64) (tries int, differs string) {
	var seen []string
	for len(seen) < maxReplays {
		trace := runSeed(t, seed, "").trace
		if slices.Contains(seen, trace) {
			return len(seen) + 1, differs
		}
		if seen = append(seen, trace); len(seen) > 1 {
			differs = firstDifference(seen[0], trace)
		}
	}
	return len(seen) + 1, differs
}

// firstDifference returns the first line in which two traces differ.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d of %d: %q and %q", i, len(x), x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// TestSeed runs the seed SEED, and prints each event.
func TestSeed(t *testing.T) {
	seed := readNumber(t, "SEED", 1)
	first := runSeed(t, seed, os.Getenv("MUTANT"))
	if os.Getenv("SEED") != "" {
		fmt.Println(first.trace)
	}
	if first.violation != nil {
		t.Errorf("seed %d: %s: %s", seed, first.violation.kind, first.violation.text)
	}
}
