package simulation_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// number reads a setting of a run from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
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

// TestSeeds runs SEEDS seeds from FROM on, each STEP further than the last, until
// five have failed, or one where STOP is set.
func TestSeeds(t *testing.T) {
	seeds, from, step := number(t, "SEEDS", 150), number(t, "FROM", 1), number(t, "STEP", 1)
	began, told := time.Now(), time.Now()
	var sum counts
	failed := 0
	for i := range seeds {
		seed := from + i*step
		o := run(t, seed, os.Getenv("MUTANT"))
		sum.add(o.counts)
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

// TestSeed replays SEED with everything that happens.
func TestSeed(t *testing.T) {
	seed := number(t, "SEED", 1)
	first := run(t, seed, os.Getenv("MUTANT"))
	if os.Getenv("SEED") != "" {
		fmt.Println(first.trace)
	}
	if first.violation != nil {
		t.Errorf("seed %d: %s: %s", seed, first.violation.kind, first.violation.text)
	}
}
