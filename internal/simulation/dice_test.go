package simulation_test

import (
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"
)

// dice draws random values by name. The n-th draw of a name is the same in each run of a seed, in
// whatever order the goroutines run.
type dice struct {
	seed uint64

	mu sync.Mutex
	n  map[string]uint64

	draws atomic.Uint64 // number of draws so far; watchForSpin checks that the number rises
}

func newDice(seed uint64) *dice { return &dice{seed: seed, n: map[string]uint64{}} }

func (d *dice) drawNext(name string) uint64 {
	d.mu.Lock()
	d.n[name]++
	n := d.n[name]
	d.mu.Unlock()
	return d.drawNth(name, n)
}

func (d *dice) drawNth(name string, n uint64) uint64 {
	d.draws.Add(1)
	h := fnv.New64a()
	h.Write([]byte(name))
	return mixBits(h.Sum64() ^ mixBits(d.seed*0x9E3779B97F4A7C15+n))
}

// mixBits is the finalizer of splitmix64.
func mixBits(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// drawFloat draws a number from 0 up to 1, but never 1.
func (d *dice) drawFloat(name string) float64 { return float64(d.drawNext(name)>>11) / (1 << 53) }

// drawChance returns true with probability p.
func (d *dice) drawChance(name string, p float64) bool { return d.drawFloat(name) < p }

// drawBelow draws an integer from 0 to n-1.
func (d *dice) drawBelow(name string, n int) int { return int(d.drawFloat(name) * float64(n)) }

// drawBetween draws a duration from low up to high. The duration has nanoseconds, so two draws of a
// run are hardly ever equal.
func (d *dice) drawBetween(name string, low, high time.Duration) time.Duration {
	return low + time.Duration(d.drawFloat(name)*float64(high-low))
}

// newSource returns a function that draws random values from 0 to 1. Several goroutines may call
// it: the values depend on the virtual time, and not on the order of the calls.
func (d *dice) newSource(name string) func() float64 {
	return func() float64 {
		return float64(d.drawNth(name, uint64(time.Now().UnixNano()))>>11) / (1 << 53)
	}
}
