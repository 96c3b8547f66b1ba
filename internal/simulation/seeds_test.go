package simulation_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// readSeeds returns the number of seeds in an environment variable. If the variable is empty or not
// set, readSeeds returns the parameter "otherwise", and under the race detector a tenth of it:
// there a seed takes about six times as long, and TestMutants_TheBinaryWithoutAMutantBreaksNoRule
// runs all seeds without the detector. If ALL_SEEDS is set, as by make test-long, the detector
// watches all of them.
func readSeeds(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	if isRaceDetectorOn && os.Getenv("ALL_SEEDS") == "" {
		otherwise = (otherwise + 9) / 10
	}
	return readNumber(t, name, otherwise)
}

// readNumber returns the number in an environment variable. If the variable is empty or not set,
// readNumber returns the parameter "otherwise".
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

// runWorlds runs seeds with the settings that the function draw returns, and returns the sum of
// their counts. These environment variables control the run; <env> stands for the value of the
// parameter env:
//   - <env>: the number of seeds; see readSeeds for the default.
//   - <env>_FROM: the first seed. The default is 1.
//   - STEP: the distance from one seed to the next. The default is 1.
//   - STOP: if set, the first failure ends the run.
//   - <env>_TRACE: if set, each failure prints its trace.
func runWorlds(t *testing.T, env string, otherwise uint64, draw func(*dice) settings) (sum counts) {
	t.Helper()
	seeds, from, step := readSeeds(t, env, otherwise), readNumber(t, env+"_FROM", 1),
		readNumber(t, "STEP", 1)
	began, told := time.Now(), time.Now()
	for i := range seeds {
		told = tellProgress(told, began, i, seeds)
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

// tellProgress prints the number of finished seeds at most every 30 s, so that a slow run differs
// from one that hangs. It returns the time of the last line.
func tellProgress(told, began time.Time, done, seeds uint64) time.Time {
	if time.Since(told) < 30*time.Second {
		return told
	}
	fmt.Printf("%d of %d seeds, %s\n", done, seeds, time.Since(began).Round(time.Second))
	return time.Now()
}

// TestSeeds runs seeds until five of them have failed. These environment variables control the run:
//   - SEEDS: the number of seeds. The default is 300; see readSeeds.
//   - FROM: the first seed. The default is 1.
//   - STEP: the distance from one seed to the next. The default is 1.
//   - STOP: if set, the first failure ends the run.
func TestSeeds(t *testing.T) {
	seeds, from, step := readSeeds(t, "SEEDS", 300), readNumber(t, "FROM", 1),
		readNumber(t, "STEP", 1)
	began, told := time.Now(), time.Now()
	var sum counts
	failed := 0
	for i := range seeds {
		told = tellProgress(told, began, i, seeds)
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
	}

	t.Logf("%d seeds in %s: %+v", seeds, time.Since(began).Round(time.Millisecond), sum)
}

// maxReplays is the largest number of runs of a seed. Two of these runs must be the same. In a run,
// Go makes up to four random choices with two possibilities each, so a seed has up to sixteen
// different runs. So two of seventeen runs must be the same. Seven more runs are a reserve: a busy
// machine interrupts goroutines.
const maxReplays = 24

// TestSeeds_ReplayExactly checks that the runs of a seed are the same, with each event at the same
// nanosecond.
//
// The race detector shuffles goroutines on purpose, so the test runs the seeds in a process without
// the race detector. Two sources of chance remain:
//   - A select chooses at random if two of its cases become ready in the same nanosecond.
//   - A busy machine can interrupt a goroutine between two events of the same nanosecond.
//
// So the test looks again at a seed that needs more than two runs, and allows that one seed in ten
// needs them twice.
func TestSeeds_ReplayExactly(t *testing.T) {
	if os.Getenv("REPLAY") == "" {
		// The binary of the mutants has no race detector, and runs the program unchanged without a
		// name of a mutant.
		if out, err := (mutant{}).runTest(t, "TestSeeds_ReplayExactly", "REPLAY=1"); err != nil {
			t.Errorf("repeat the seed in another process: %v\n%s", err, out)
		}
		return
	}

	const seeds, most = 120, 12
	interrupted := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		tries, differs := replaySeed(t, seed)
		if tries > 2 && tries <= maxReplays {
			t.Logf("seed %d needed %d tries: %s", seed, tries, differs)
			tries, differs = replaySeed(t, seed)
		}

		switch {
		case tries > maxReplays:
			t.Errorf("seed %d differs each time: %s", seed, differs)
		case tries > 2:
			interrupted++
			t.Logf("seed %d needed %d tries again: %s", seed, tries, differs)
		}
	}

	if interrupted > most {
		t.Errorf("%d of %d seeds did not replay at once, want at most %d", interrupted, seeds, most)
	}
}

// replaySeed runs a seed until two of its runs are the same, at most maxReplays times. The result
// "tries" is the number of runs, or maxReplays + 1 if all runs were different. The result "differs"
// describes the difference between two runs; "" = the first two runs were the same.
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

// firstDifference describes the first difference between two traces.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d of %d: %q and %q", i, len(x), x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// TestSeed runs one seed: the number in the environment variable SEED, or 1. If SEED is set,
// TestSeed prints each event.
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
