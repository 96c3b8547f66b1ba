package simulation_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"weir/internal/limiter"
	"weir/internal/signin"
)

// Worlds of rates have a rate that several processes with several lanes share, with chains or
// without. The CMS counts the requests of all processes over each second. Processes are killed, cut
// off from storage and stopped, and their clocks differ.

func drawRates(d *dice) settings {
	s := drawChains(d)
	if d.drawChance("single requests", 0.5) {
		s.chains = chaining{}
	}

	s.instances, s.lanes = 2+d.drawBelow("rated instances", 3), 2+d.drawBelow("rated lanes", 3)
	s.rate = 2 + d.drawBelow("rate", 7)

	return s
}

// newLimiter returns the limiter of a process, whose clock has the error of its slot at the start
// of the process. The clock of a limiter does not jump.
func (p *process) newLimiter() *limiter.Limiter {
	w := p.w
	if w.rate == 0 {
		return nil
	}

	ahead := time.Until(p.now())

	return limiter.New(limiter.Config{Table: p.newTable("rate"), CMS: "cms",
		Rate: limiter.Rate{Count: w.rate, Per: time.Second},
		Now:  func() time.Time { return time.Now().Add(ahead) },
		Rand: w.dice.newSource(p.name + " rate"), Log: discardLog})
}

func (p *process) closeLimiter() {
	if p.limiter != nil {
		p.limiter.Close()
	}
}

// newTransport returns the transport of the process's requests to the CMS.
func (p *process) newTransport(wire http.RoundTripper) http.RoundTripper {
	if p.limiter != nil {
		wire = limiter.NewTransport(wire, p.limiter)
	}

	return signin.NewTransport(wire, p.signIn)
}

func (p *process) countRequests(contract string) int {
	if p.mostRequests == nil {
		return 1
	}

	return p.mostRequests(contract)
}

// noteSlotUsed checks the rule "rate" when a process begins a request: no second has more requests
// of all processes than the rate. A process that stands still begins the request later; such a
// request counts at the time at which the process let it go.
func (p *process) noteSlotUsed() {
	if p.w.rate == 0 || p.isDead() {
		return
	}

	c := p.w.check
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = append(c.used, time.Now())
	if n := len(c.used) - 1 - p.w.rate; n >= 0 {
		if took := time.Since(c.used[n]); took < time.Second {
			c.addViolation("rate", "%s sent request %d of %s, want %d in a second at most", p.name,
				p.w.rate+1, took, p.w.rate)
		}
	}
}

const (
	// In ratedFor, single requests of so many messages use the rate up.
	ratedFor = 20 * time.Second
	// The processes take ratedStart until they use the rate, and then use ratedShare of it at least
	// until a third of the messages is left: the last ones can be all of one lane.
	ratedStart = 4 * time.Second
	ratedShare = 0.7
)

// fileRated posts many messages when all is at rest, and checks the rule "unused": while messages
// wait, the rate is used. It reports whether all work is done afterwards.
func (w *world) fileRated(ctx context.Context) bool {
	if w.rate == 0 {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	time.Sleep(time.Minute) // the pace is that of the settings again
	first, rated := len(w.check.expected), w.rate*int(ratedFor.Seconds())
	w.fileAllOf(ctx, first, rated, "rated", "article")
	time.Sleep(ratedStart)
	began, before := time.Now(), w.check.countUsed()
	for w.check.countWaiting(first, rated) > rated/3 && time.Since(began) < time.Hour {
		time.Sleep(50 * time.Millisecond)
	}

	used, took := w.check.countUsed()-before, time.Since(began)
	// the time can begin just after a request, and end just before one
	if want := ratedShare*float64(w.rate)*took.Seconds() - 1; float64(used) < want {
		w.check.reportViolation("unused", "%d requests in %s while messages wait, want %.0f at least",
			used, took, want)
	}

	return w.awaitRest(ctx)
}

// countUsed returns the number of requests so far.
func (c *checker) countUsed() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return len(c.used)
}

// TestRates runs 40 seeds with a rate, from seed 1 on. The environment variables RATES and
// RATES_FROM change the number and the first seed.
func TestRates(t *testing.T) { runWorlds(t, "RATES", 40, drawRates) }
