package simulation_test

import (
	"context"
	"fmt"

	"weir/internal/storage"
	"weir/internal/weir"
)

// This file has the checks at the end of a run, when all work should be done.

// checkAtRest makes all checks at the end of a run, and counts all rows again. The parameter
// isAtRest is false if some work was not done in time.
func (c *checker) checkAtRest(ctx context.Context, isAtRest bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !isAtRest && c.first == nil {
		c.addViolation("stuck", "work is left %s after the faults ended: %s", bound,
			c.describeWaiting())
	}

	bodies, idems := map[string]int{}, map[string]int{}
	for n := range c.w.lanes {
		l := c.laneOf(n)
		for _, f := range l.log {
			c.checkSettled(ctx, l, f)
			if f.key != runsKey {
				bodies[f.body]++
			}

			if f.idem != "" {
				idems[f.idem]++
			}
		}

		c.recountLane(l, n, l.last)

		if id := l.last.Tail.AttemptingID; id != "" && isAtRest {
			c.addViolation("report",
				"lane %d: all is at rest, and tail has an attempt of %s", n, id)
		}

		c.checkLeftovers(ctx, n, l.last.Tail.Counts.Dead)
	}

	if c.first == nil {
		c.concludeHistories()
	}

	c.checkBlocker()
	c.checkCommits()
	c.checkRecurring(ctx)
	c.checkRuns()
	c.checkBulkReplays(ctx)
	c.checkAllTold(ctx)
	c.checkItems()
	c.checkAllParts()

	for _, s := range c.expected {
		if s.id.IsZero() {
			continue
		}

		if l := c.laneOf(s.id.Lane); s.id.Seq < 1 || s.id.Seq > int64(len(l.log)) ||
			l.log[s.id.Seq-1].id != s.id {
			c.addViolation("lost", "message %s was acknowledged and is not in the log",
				s.message.Body)
		}
	}

	for _, n := range idems {
		if n > 1 {
			c.addViolation("twice", "one idempotency key was filed %d times", n)
		}
	}

	for _, n := range bodies {
		if n > 1 {
			c.addViolation("twice", "one submission was filed %d times", n)
		}
	}
}

// checkLeftovers checks the rows of a lane without waiting messages: no blocks, no held messages,
// and one row in the list of dead messages for each dead message. The parameter dead is the number
// of dead messages.
func (c *checker) checkLeftovers(ctx context.Context, number int, dead int64) {
	if c.first != nil {
		return
	}

	count := func(prefix string) (n int64) {
		page, err := c.w.account.Table().Range(ctx,
			storage.Query{Partition: fmt.Sprintf("%d.%d", c.store.Epoch, number), From: prefix,
				To: prefix + "~"})
		if err != nil {
			c.addViolation("books", "%v", err)
		}
		return int64(countWhole(page.Rows))
	}
	if blocked, held, listed := count("b_"), count("r_"), count("x_"); blocked != 0 || held != 0 ||
		listed != dead {
		c.addViolation("books",
			"lane %d at rest has %d blocked keys, %d held messages and a list of %d dead where %d are", number, blocked,
			held, listed, dead)
	}
}

// checkSettled counts a message. It checks that the message is final, and that its stage agrees
// with the events that the checker has seen.
func (c *checker) checkSettled(ctx context.Context, l *laneState, f *filed) {
	st, err := c.store.Messages().Status(ctx, f.id)
	switch {
	case err != nil || !st.Stage.Final():
		c.addViolation("lost", "seq %d of lane %d is %s in the end: %v", f.id.Seq, f.id.Lane,
			st.Stage, err)
	case st.Stage == weir.Dead && st.LastError == "":
		c.addViolation("lost", "seq %d of lane %d is dead without a reason", f.id.Seq, f.id.Lane)
	case st.Stage == weir.Delivered && !f.taken:
		c.addViolation("lost", "seq %d of lane %d counts as delivered, and no answer said so",
			f.id.Seq, f.id.Lane)
	case st.Stage == weir.Cancelled && !f.asked:
		c.addViolation("cancelled", "seq %d of lane %d is cancelled without a request",
			f.id.Seq, f.id.Lane)
	case f.discardAsked != (st.Stage == weir.Discarded):
		c.addViolation("discarded", "seq %d of lane %d is %s, and was to be discarded: %v",
			f.id.Seq, f.id.Lane, st.Stage, f.discardAsked)
	case st.Stage == weir.Discarded && st.DiscardReason == "" && !f.erasing:
		c.addViolation("discarded", "seq %d of lane %d has lost the reason of its discard",
			f.id.Seq, f.id.Lane)
	case f.erased && st.DiscardReason != "":
		c.addViolation("erased",
			"seq %d of lane %d was erased, and has the reason of its discard: %s",
			f.id.Seq, f.id.Lane,
			st.DiscardReason)

	case f.cancelled && st.Stage != weir.Cancelled:
		c.addViolation("cancelled", "seq %d of lane %d was cancelled, and is %s", f.id.Seq,
			f.id.Lane, st.Stage)
	case st.Stage == weir.Superseded:
		by, err := weir.ParseID(st.SupersededBy)
		if err != nil || by.Seq > int64(len(l.log)) ||
			c.stageOf(l.log[by.Seq-1]) != weir.Delivered ||
			!l.log[by.Seq-1].version.Newer(f.version) {
			c.addViolation("superseded", "seq %d of lane %d is superseded by %q", f.id.Seq,
				f.id.Lane, st.SupersededBy)
			break
		}

		newer := l.log[by.Seq-1] // an edit can have changed its version since
		warning := weir.DescribeFraction(f.versionText, newer.versionText)
		if newer.replays == 0 && warning != "" && st.VersionWarning == "" {
			c.addViolation("superseded",
				"seq %d of lane %d, version %s, is superseded by %s without a warning",
				f.id.Seq, f.id.Lane, f.versionText, newer.versionText)
		}
	}

	c.counts.Messages++
	switch st.Stage {
	case weir.Delivered:
		c.counts.Delivered++
	case weir.Dead:
		c.counts.Dead++
	case weir.Superseded:
		c.counts.Superseded++
	case weir.Cancelled:
		c.counts.Cancelled++
	}
}

// describeWaiting returns the messages that still wait, and the tails of the lanes, as text.
func (c *checker) describeWaiting() string {
	text := ""
	for n := range c.w.lanes {
		l := c.laneOf(n)
		for _, f := range l.log {
			if s := c.stageOf(f); !s.Final() {
				text += fmt.Sprintf(" lane %d seq %d key %s %s;", n, f.id.Seq, f.key, s)
			}
		}

		text += fmt.Sprintf(" tail %d: %+v", n, l.last.Tail)
	}

	return text
}
