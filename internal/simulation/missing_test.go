package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// In this file a contract disappears from the settings and comes back: all processes are deployed
// twice. A process that lacks the contract sends no message of the contract, and messages of other
// keys do not wait. In some runs the contract comes back with another name.

// missing says which contract is missing, and when.
type missing struct {
	contract string // name of the contract that disappears; empty = none does
	// span in which the processes that start lack the contract, counted from the start
	from, till time.Duration
	isRenamed  bool // the contract comes back with another name
	// it disappears once more after the faults, while upstreams send messages of it
	isAgain bool
	isGone  bool // it is missing now because of isAgain
}

// renamedContract is the name with which a contract comes back.
const renamedContract = "renamed"

func (s *settings) drawMissing(d *dice) {
	if !d.drawChance("contract missing", 0.12) || len(s.backoff.Steps) > 0 {
		return
	}

	s.missing.contract = []string{"article", "edit"}[d.drawBelow("missing contract", 2)]
	s.missing.from = d.drawBetween("missing from", 0, s.trouble/2)
	s.missing.till = s.missing.from + d.drawBetween("missing for", time.Second, s.trouble/2)
	s.missing.isRenamed = s.forgets == 0 && d.drawChance("contract renamed", 0.4)
	s.missing.isAgain = d.drawChance("contract missing again", 0.5)
}

// contractsNow returns the contracts in the settings of a process that starts now.
func (w *world) contractsNow() *lane.Contracts {
	former := map[string][]string{"article": nil, "edit": nil}
	name, at := w.missing.contract, time.Since(w.started)
	switch {
	case name == "":
	case w.missing.isGone || at >= w.missing.from && at < w.missing.till:
		delete(former, name)
	case at >= w.missing.till && w.missing.isRenamed:
		delete(former, name)
		former[renamedContract] = []string{name}
	}

	return lane.NewContracts(former)
}

// planDeployments deploys all slots when the contract disappears, and when it comes back.
func (s *slot) planDeployments() {
	if s.w.missing.contract == "" {
		return
	}

	for _, at := range []time.Duration{s.w.missing.from, s.w.missing.till} {
		at += s.w.dice.drawBetween(fmt.Sprint("slot ", s.number, " deployed"), 0, 3*time.Second)
		s.plans.Go(func() {
			time.Sleep(at)
			s.takeTurn(fmt.Sprint("slot ", s.number, " deployed"))
			s.deploy()
			<-s.turn
		})
	}
}

// deploy ends the slot's process in order, unless the process was killed, and starts another one
// with the present settings. A killed process cannot end in order: its goroutines stand until the
// run ends.
func (s *slot) deploy() {
	if p := s.currentProcess(); !p.isDead() {
		p.stopInOrder()
	}
	s.startProcess()
}

const (
	// unsendable is the number of the messages of a missing contract that fileMissing posts, each
	// with a key of its own.
	unsendable = 40
	// claimsLast is the time after which a claim of a process that has ended does not count any
	// more.
	claimsLast = 15 * time.Second
	// flows is the time within which messages of other keys are delivered beside messages that wait
	// for their contract.
	flows = 5 * time.Second
	// returns is the time within which messages are delivered when their contract is back and a
	// process has started.
	returns = 10 * time.Second
)

// fileMissing deploys all slots without a contract once the lanes are at rest, posts messages of
// the contract, and then messages of other keys. Then the contract comes back. It reports whether
// all work is done afterwards.
func (w *world) fileMissing(ctx context.Context) bool {
	if !w.missing.isAgain {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	w.redeploy(true)
	time.Sleep(claimsLast)         // a process that was just stopped may have claimed a lane
	first := len(w.check.expected) // the number of the next submission
	w.fileAllOf(ctx, first, unsendable, "gone", w.missing.contract)
	other := map[string]string{"article": "edit", "edit": "article"}[w.missing.contract]
	time.Sleep(w.stand)
	w.fileAllOf(ctx, first+unsendable, others, "flows", other)

	for end := time.Now().Add(flows); time.Now().Before(end) &&
		!w.check.isAllTaken(first+unsendable, others); {
		time.Sleep(50 * time.Millisecond)
	}

	w.check.checkFlows(first+unsendable, others)
	w.redeploy(false)
	limit := returns + claimsLast + w.hosting.cold
	for end := time.Now().Add(limit); time.Now().Before(end) &&
		w.check.countWaiting(first, unsendable) > 0; {
		time.Sleep(50 * time.Millisecond)
	}

	if n := w.check.countWaiting(first, unsendable); n > 0 {
		w.check.reportViolation("returned",
			"%d messages still wait %s after their contract is back", n, limit)
	}

	w.quiet = time.Now()

	return w.awaitRest(ctx)
}

// fileOutdated posts an old version of each key of the contract "edit" if that contract has another
// name now. A version that was delivered under the former name supersedes it. It reports whether
// all work is done afterwards.
func (w *world) fileOutdated(ctx context.Context) bool {
	if !w.missing.isRenamed || w.missing.contract != "edit" {
		return true
	}

	var filed sync.WaitGroup
	for i := 3; i < w.keys; i += 4 { // see newSubmission
		number, key := len(w.check.expected), fmt.Sprint("k", i)
		m := weir.Message{Contract: "edit", Key: key, ContentType: "application/xml",
			Body: w.newBody(number), Supersede: true, Version: "0"}
		s := &submission{number: number, key: key, idem: fmt.Sprint("idem", number), message: m}
		w.check.expectSubmission(s)
		filed.Go(func() {
			time.Sleep(w.dice.drawBetween("outdated "+key, 0, time.Second))
			w.sendUntilAccepted(ctx, fmt.Sprint(number), s)
		})
	}

	filed.Wait()

	return w.awaitRest(ctx)
}

// redeploy deploys all slots with or without the contract.
func (w *world) redeploy(isGone bool) {
	w.missing.isGone = isGone
	w.trace.addLine("contract %s: missing %v", w.missing.contract, isGone)
	for _, s := range w.slots {
		s.deploy()
	}
	time.Sleep(time.Second)
}

// checkFlows checks that the CMS has taken the n submissions from the number first on, although
// messages wait for their contract.
func (c *checker) checkFlows(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		c.counts.Flowed++
		if f := c.filedAs(i); f != nil && !f.taken {
			c.addViolation("unfair",
				"seq %d of lane %d, key %s, waits longer than %s beside %d that wait for their "+
					"contract", f.id.Seq, f.id.Lane, f.key, flows, unsendable)
		}
	}
}

// countWaiting returns how many of the n submissions from the number first on wait.
func (c *checker) countWaiting(first, n int) (waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		if f := c.filedAs(i); f != nil && !c.stageOf(f).Final() {
			waiting++
		}
	}

	return waiting
}

// checkContract checks that the sender of a request has the contract of the message.
func (c *checker) checkContract(f *filed, r *request) {
	if !r.p.store.Contracts.Has(f.contract) {
		c.addViolation("contract",
			"%s sent seq %d of lane %d, and its settings lack the contract %s", r.p.name, f.id.Seq,
			f.id.Lane, f.contract)
	}
}
