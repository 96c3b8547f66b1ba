package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/timelimit"
	"weir/internal/upkeep"
	"weir/internal/weir"
)

// Some seeds continue for days after all work is done. Several times, the world kills all
// instances, jumps hours or days ahead, and starts new instances. After most jumps, upstreams send
// more messages and storage fails. Retention must keep a dead message for keepDeadFor, and each
// other final message for keepFor. In the end, retention must have removed all messages, except
// those that storage refuses to remove.

const (
	keepFor     = 4 * 24 * time.Hour
	keepDeadFor = 8 * 24 * time.Hour
	// roundsTake is the shortest time between two jumps. It is long enough for some sweeps and for
	// the retention that each sweep begins.
	roundsTake = 150 * time.Second
)

// drawAges draws whether days pass at the end of a seed, and whether storage then refuses to remove
// a row or a body.
func (s *settings) drawAges(d *dice) {
	s.grows = d.drawChance("grows old", 0.35)
	s.refusedRow, s.refusesBody = -1, d.drawChance("refuses a body", 0.3)
	if d.drawChance("refuses a row", 0.3) {
		s.refusedRow = 1 + d.drawBelow("refused row", s.messages/s.lanes+1)
	}
}

// simulatesDays reports whether days can pass in a run with this mutant; an empty name means no
// mutant. Mutants of retention and upkeep show their effect only after days. With other mutants,
// simulated days can take too much real time: for example, one mutant makes each process always
// trust its lease, so that the process calls storage each second.
func simulatesDays(name string) bool {
	return name == "" || slices.ContainsFunc(mutants, func(m mutant) bool {
		return m.name == name &&
			(strings.HasPrefix(m.file, "lane/retention") || strings.HasPrefix(m.file, "upkeep/"))
	})
}

// newUpkeep returns the part of a process that starts retention.
func (p *process) newUpkeep() *upkeep.Keeper {
	store := *p.store
	store.Table, store.Bodies = p.newTable("retention "),
		timelimit.Blobs(retentionBlobs{blobPort{p}})
	r := &lane.Retention{Store: &store, KeepFinal: keepFor, KeepDead: keepDeadFor,
		TimeShare: 5 * time.Second, OnRemoved: func(removed, refused int) {
			p.w.check.addCounts(func(c *counts) { c.Removed += removed; c.Kept += refused })
		}}

	parts := upkeep.Parts{Messages: r, Audit: p.audit,
		History:   history.Expiry{Table: store.Table, Now: p.now},
		Replays:   replay.Expiry{Table: store.Table, Now: p.now},
		Schedules: &recur.Store{Table: store.Table, Bodies: store.Bodies, Now: p.now},
		Leases:    timelimit.Blobs(leaseBlobPort{blobPort{p}}), Now: p.now}

	return upkeep.New(upkeep.Config{Retention: r, Lanes: p.w.lanes, Table: store.Table, Now: p.now,
		Logger: discardLog, Jobs: upkeep.Jobs(parts)})
}

// errForGood returns the error for a row or body that storage always refuses to remove.
func errForGood(op string, kind storage.Kind, index int) error {
	return &storage.Error{Op: op, Kind: kind, Index: index, Err: errFault}
}

// refusesRemoval returns an error if the transaction removes the message that storage always
// refuses to remove: number refusedRow of lane 0.
func (w *world) refusesRemoval(partition string, ops []storage.Op) error {
	for i, op := range ops {
		if op.Kind == storage.Delete && op.Key == "m_"+lane.OrderPos(int64(w.refusedRow)) &&
			strings.HasSuffix(partition, ".0") {
			return errForGood("table transact", storage.Other, i)
		}
	}
	return nil
}

// retentionBlobs is the blob storage that retention uses. In some seeds it always refuses to remove
// one body: that of the first call of Delete.
type retentionBlobs struct{ blobPort }

func (b retentionBlobs) Delete(ctx context.Context, name string) error {
	return b.p.doOperation(ctx, "retention blob delete", true, func() error {
		if b.p.w.refusesBody && b.p.w.check.isStuck(name) {
			return errForGood("blob delete", storage.Conflict, -1)
		}
		return b.p.w.account.Blobs().Delete(context.Background(), name)
	})
}

// isStuck reports whether storage refuses to remove a body. Storage refuses the body of the first
// call of isStuck, and no other body.
func (c *checker) isStuck(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck == "" {
		c.stuck = name
	}
	return c.stuck == name
}

// letDaysPass lets days pass in some seeds, and checks that retention removes the right messages.
func (w *world) letDaysPass(ctx context.Context) {
	if !w.grows || !w.check.hasNoViolation() || !simulatesDays(w.mutant) {
		return
	}

	jumps := []time.Duration{keepFor - w.dice.drawBetween("just before", 0, time.Since(w.started)),
		0, 0, 0, 0}
	jumps[1] = w.dice.drawBetween("hours", 10*time.Second, 3*time.Hour)
	jumps[2] = 25 * time.Hour
	jumps[3] = keepDeadFor - keepFor
	jumps[4] = 25 * time.Hour
	for i, jump := range jumps {
		w.jumpDays(jump)
		w.rough.Store(time.Now().Add(time.Minute).UnixNano())
		w.sendMore(ctx, fmt.Sprint("phase ", i), w.dice.drawBelow("more", 6))
		w.awaitRestAfterJump(ctx)
		w.check.checkAged(ctx)
	}

	w.rough.Store(0)

	for range 2 {
		w.jumpDays(keepDeadFor + 25*time.Hour)
		w.awaitRestAfterJump(ctx)
		w.check.checkAged(ctx)
	}

	w.check.checkEmptied(ctx)
}

// jumpDays kills all instances, and starts new instances after the time d.
func (w *world) jumpDays(d time.Duration) {
	for _, s := range w.slots {
		s.currentProcess().killProcess()
	}

	time.Sleep(d)
	w.trace.addLine("%s later", d)

	for _, s := range w.slots {
		s.startProcess()
		time.Sleep(w.dice.drawBetween("start", time.Millisecond, 2*time.Second))
	}
}

// sendMore lets upstreams send some more messages.
func (w *world) sendMore(ctx context.Context, name string, n int) {
	for range n {
		s := w.newSubmission(len(w.check.expected))

		// too late for a modelled key: the checker has completed the key's history
		if isModelled(s.message) {
			s.key, s.message.Key, s.message.Skip = "k2", "k2", true
		}

		s.idem = fmt.Sprint("idem", s.number)
		w.check.expectSubmission(s)
		start := w.dice.drawBetween(name, 0, time.Minute)
		w.upstream.Go(func() {
			time.Sleep(start)
			w.sendUntilAccepted(ctx, fmt.Sprint(s.number), s)
		})
	}

	w.upstream.Wait()
}

// awaitRestAfterJump waits until some sweeps have run and no work is left.
func (w *world) awaitRestAfterJump(ctx context.Context) {
	time.Sleep(roundsTake)
	for end := time.Now().Add(bound); !w.isAtRest(ctx) &&
		w.check.hasNoViolation(); time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			w.check.reportViolation("stuck", "work is left %s after days have passed", bound)
			return
		}
	}
}

// keepOf returns the time for which a final message is kept.
func keepOf(stage weir.Stage) time.Duration {
	if stage == weir.Dead {
		return keepDeadFor
	}
	return keepFor
}

// removal is a message that a transaction is about to remove, with its status before the removal.
type removal struct {
	f  *filed
	st weir.Status
}

// findRemovals reads the messages that a transaction is about to remove.
func (c *checker) findRemovals(l *laneState, ops []storage.Op) (found []removal) {
	for _, op := range ops {
		seq, isMessage := strings.CutPrefix(op.Key, "m_")
		if op.Kind != storage.Delete || !isMessage {
			continue
		}

		for _, f := range l.log {
			if lane.OrderPos(f.id.Seq) != seq || f.gone {
				continue
			}
			if st, err := c.store.Messages().Status(context.Background(), f.id); err == nil {
				found = append(found, removal{f, st})
			}
		}
	}

	return found
}

// checkRemoved checks that a removed message had been final for the time that keepOf returns.
func (c *checker) checkRemoved(p *process, l *laneState, ops []storage.Op, gone []removal) {
	for _, r := range gone {
		switch early := r.st.FinishedAt.Add(keepOf(r.st.Stage)).Sub(p.nowAtMost()); {
		case !r.st.Stage.Final():
			c.addViolation("removed", "%s removed seq %d of lane %d, which is %s", p.name,
				r.f.id.Seq, r.f.id.Lane, r.st.Stage)
		case early > 0:
			c.addViolation("removed", "%s removed seq %d of lane %d %s before its time", p.name,
				r.f.id.Seq, r.f.id.Lane, early)
		}

		r.f.final, r.f.gone = r.st.Stage, true
	}

	if slices.ContainsFunc(ops,
		func(op storage.Op) bool { return op.Kind == storage.Delete && op.Key[:2] == "d_" }) {
		c.checkStaysDelivered(l)
	}
}

// checkStaysDelivered checks that a delivered message stays delivered until it is removed.
func (c *checker) checkStaysDelivered(l *laneState) {
	for _, f := range l.log {
		if f.final != weir.Delivered || f.gone {
			continue
		}

		if st, err := c.store.Messages().Status(context.Background(), f.id); err != nil ||
			st.Stage != weir.Delivered {
			c.addViolation("removed", "seq %d of lane %d was delivered, and is %q: %v", f.id.Seq,
				f.id.Lane, st.Stage, err)
		}
	}
}

// checkAged checks the remaining messages between two jumps. Each message can be read and has its
// idempotency key. A message that is not erased has its body until its retention is over.
func (c *checker) checkAged(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for n := range c.w.lanes {
		l := c.laneOf(n)
		for _, f := range l.log {
			c.stageOf(f)
		}

		c.checkStaysDelivered(l)

		for _, f := range l.log {
			if f.gone {
				continue
			}

			st, err := c.store.Messages().Status(ctx, f.id)
			if err == nil && st.ErasedAt.IsZero() &&
				// retention removes the body before the row
				time.Since(st.FinishedAt) < keepOf(st.Stage)-time.Second {
				_, err = c.store.Messages().LoadMessage(ctx, f.id)
			}

			if err != nil {
				c.addViolation("removed", "seq %d of lane %d cannot be read: %v", f.id.Seq,
					f.id.Lane, err)
			}

			if f.idem != "" && len(c.rowsOf(n, f.idem)) != 1 {
				c.addViolation("removed", "seq %d of lane %d has lost its idempotency key",
					f.id.Seq, f.id.Lane)
			}
		}
	}
}

// checkEmptied checks that only those messages are left whose row or body storage refuses to
// remove. Such a message can still have all its rows and its body.
func (c *checker) checkEmptied(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := 0
	for n := range c.w.lanes {
		kept := 0
		for _, f := range c.laneOf(n).log {
			if f.gone {
				continue
			}

			kept++

			if stuck := c.stuck != "" && (f.body == c.stuck || f.editedBlob == c.stuck); !stuck &&
				(n != 0 || f.id.Seq != int64(c.w.refusedRow)) {
				c.addViolation("left", "seq %d of lane %d, %s, is left after its retention",
					f.id.Seq, n, c.stageOf(f))
			}
		}

		left += kept

		if rows := c.rowsOf(n, "l_"); kept == 0 && len(rows) > 0 && !c.w.isDamaged {
			c.addViolation("left", "lane %d has no message, and %d records of last deliveries",
				n, len(rows))
		}

		for _, prefix := range []string{"m_", "i_", "d_", "x_", "o_", "b_", "r_", "s_",
			"w_", "n_"} {
			if rows := c.rowsOf(n, prefix); len(rows) > kept {
				c.addViolation("left", "lane %d has %d rows %s… for %d messages that storage keeps",
					n, len(rows), prefix, kept)
			}
		}
	}

	page, err := c.w.account.Blobs().List(ctx, "2", "")
	if err != nil || len(page.Infos) > left+1 {
		c.addViolation("left", "%d bodies are left of %d messages: %v", len(page.Infos), left, err)
	}

	for _, info := range page.Infos {
		if info.Name != c.stuck && left == 0 {
			c.addViolation("left", "the body %s is left", info.Name)
		}
	}
}
