package simulation_test

import (
	"hash/fnv"
	"sync"
	"time"
)

// dice draws chances by name. The n-th draw of a name is the same in every run of a seed,
// whatever goroutines did in between.
type dice struct {
	seed uint64

	mu sync.Mutex
	n  map[string]uint64
}

func newDice(seed uint64) *dice { return &dice{seed: seed, n: map[string]uint64{}} }

func (d *dice) roll(name string) uint64 {
	d.mu.Lock()
	d.n[name]++
	n := d.n[name]
	d.mu.Unlock()
	return d.draw(name, n)
}

func (d *dice) draw(name string, n uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return mix(h.Sum64() ^ mix(d.seed*0x9E3779B97F4A7C15+n))
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// float draws from 0 up to 1.
func (d *dice) float(name string) float64 { return float64(d.roll(name)>>11) / (1 << 53) }

// chance is true with probability p.
func (d *dice) chance(name string, p float64) bool { return d.float(name) < p }

// below draws from 0 to n-1.
func (d *dice) below(name string, n int) int { return int(d.float(name) * float64(n)) }

// between draws a time, to the nanosecond: hardly two of a run are equal.
func (d *dice) between(name string, low, high time.Duration) time.Duration {
	return low + time.Duration(d.float(name)*float64(high-low))
}

// source gives chances to a part that several goroutines use: what is drawn depends on the
// moment and not on who comes first.
func (d *dice) source(name string) func() float64 {
	return func() float64 {
		return float64(d.draw(name, uint64(time.Now().UnixNano()))>>11) / (1 << 53)
	}
}
