package simulation_test

import (
	"context"
	"errors"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/storage/timelimit"
	"weir/internal/weir"
)

// ports is a process's access to the table. Each operation takes time, fails if the seed says so,
// and ends when the process ends. The field "as" has the name of a component of the process, so
// that each component has its own random draws.
type ports struct {
	p  *process
	as string
}

// newTable returns the table for a component of the process, with the time limits of the program.
// The parameter part is the name of the component.
func (p *process) newTable(part string) storage.Table {
	return timelimit.Table(ports{p: p, as: part})
}

func (p *process) newLeases() storage.Leases { return timelimit.Leases(leasePort{p}) }

const (
	// hangs is the time for which an operation hangs, unless its caller gives up.
	hangs = time.Minute
	// hungAtMost is the time within which a caller must give up a request that hangs. The holder
	// then pauses for up to 2 s before it looks at the lane again, so a hanging request costs its
	// lane ten seconds at most.
	hungAtMost = 8 * time.Second
)

// hangOperation simulates a request that hangs. It returns false if the caller gives up, or if the
// process is killed, before the request ends. If the caller waits for longer than hungAtMost,
// hangOperation reports a violation.
func (p *process) hangOperation(ctx context.Context, op string) bool {
	began := time.Now()
	answered := p.waitFor(ctx, hangs)
	if took := time.Since(began); took > hungAtMost {
		p.w.check.reportViolation("hung", "%s waited %s for %s", p.name, took, op)
	}
	return answered
}

var errFault = errors.New("simulated fault")

func newFault(op string, kind storage.Kind) error {
	return &storage.Error{Op: op, Kind: kind, Index: -1, Err: errFault}
}

// faultKind is a way in which an operation fails.
type faultKind int

const (
	none      faultKind = iota
	before              // the operation fails, and has no effect
	after               // the operation fails after its effect
	hang                // the operation hangs, then fails, and has no effect
	hangAfter           // the operation has its effect, hangs, and then fails
	late                // a write fails, and has its effect later
	throttled           // the operation has no effect, because storage has too many requests
)

func (p *process) drawFault(op string) faultKind {
	if p.isCutOff(op) {
		return []faultKind{before, hang}[p.w.dice.drawBelow(p.name+" cut "+op, 2)]
	}
	if p.w.isCalm() || !p.w.dice.drawChance(p.name+" fault "+op, p.w.faults) {
		return none
	}

	return []faultKind{before, throttled, after, after, hang, hangAfter,
		late}[p.w.dice.drawBelow(p.name+" kind "+op, 7)]
}

// doOperation makes one operation, with a fault if the seed has one. The parameter isWrite says
// that the operation changes storage. doOperation calls effect once at most, perhaps after the
// caller has given up.
func (p *process) doOperation(ctx context.Context, op string, isWrite bool,
	effect func() error) error {
	op = withoutRandom(op)
	if !p.awaitRunning(op) {
		return newFault(op, storage.Unavailable)
	}

	kind := p.drawFault(op)
	out, back := p.w.dice.drawBetween(p.name+" out "+op, 200*time.Microsecond, 3*time.Millisecond),
		p.w.dice.drawBetween(p.name+" back "+op, 200*time.Microsecond, 3*time.Millisecond)
	if p.w.storage > 0 {
		out, back = p.w.drawSlowTrip(p.name+" out "+op), p.w.drawSlowTrip(p.name+" back "+op)
	}

	if kind != none {
		p.w.check.noteDisturbance()
		defer p.w.check.noteDisturbance()
		p.w.check.addCounts(func(c *counts) { c.Faults++ })
		p.w.trace.addLine("%s %s: fault %d", p.name, op, kind)
	}

	lost := storage.Unavailable
	if isWrite {
		lost = storage.Ambiguous
	}

	switch kind {
	case before:
		p.waitFor(ctx, out)
		return newFault(op, storage.Unavailable)
	case throttled:
		p.waitFor(ctx, out)
		return newFault(op, storage.Throttled)
	case hang:
		p.hangOperation(ctx, op)
		return newFault(op, lost)
	case late:
		if isWrite {
			p.arriveLater(p.drawLateness(op), effect)
		}
		p.waitFor(ctx, out)
		return newFault(op, lost)
	}

	if !p.waitFor(ctx, out) {
		// The caller gave up, or the process was killed, after the request was sent. A write may
		// still reach storage.
		if isWrite && p.w.dice.drawChance(p.name+" arrives "+op, 0.5) {
			p.arriveLater(back, effect)
		}

		p.awaitRunning(op)
		return newFault(op, lost)
	}

	p.springTrap(op, early)
	if !p.awaitRunning(op) {
		return newFault(op, lost)
	}

	err := effect()
	p.springTrap(op, afterwards)
	wait := p.waitFor
	if kind == hangAfter {
		wait = func(ctx context.Context, _ time.Duration) bool { return p.hangOperation(ctx, op) }
	}

	if answered := wait(ctx, back); !p.awaitRunning(op) || kind != none || !answered {
		return newFault(op, lost)
	}

	return err
}

// drawLateness draws the delay of a request that arrives late. Most delays are short: such a
// request arrives at about the time at which its sender repeats it.
func (p *process) drawLateness(op string) time.Duration {
	if p.w.dice.drawChance(p.name+" soon "+op, 0.6) {
		return p.w.dice.drawBetween(p.name+" late "+op, time.Millisecond, 250*time.Millisecond)
	}
	return p.w.dice.drawBetween(p.name+" late "+op, 250*time.Millisecond, 20*time.Second)
}

// arriveLater lets a request take effect later, even if the process has ended by then.
func (p *process) arriveLater(in time.Duration, effect func() error) {
	p.w.loose.Go(func() {
		time.Sleep(in)
		_ = effect()
	})
}

// waitFor waits for the duration d, and returns true. If the caller gives up or the process is
// killed before that, waitFor returns false at once.
func (p *process) waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.killed:
	}

	return false
}

// The methods of storage.Table.

func (t ports) Get(ctx context.Context, partition, key string) (row storage.Row, err error) {
	var got storage.Row
	err = t.p.doOperation(ctx, "get "+t.as+partition+key, false, func() (err error) {
		got, err = t.p.w.account.Table().Get(context.Background(), partition, key)
		return err
	})
	return got, err
}

func (t ports) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	var got storage.Page
	name := "range " + t.as + q.Partition + q.From + q.After
	err := t.p.doOperation(ctx, name, false, func() (err error) {
		got, err = t.p.w.account.Table().Range(context.Background(), q)
		t.cutPage(name, q, &got)
		return err
	})

	return got, err
}

// cutPage sometimes drops the last rows of a page, because storage may return fewer rows than the
// caller asked for.
func (t ports) cutPage(name string, q storage.Query, got *storage.Page) {
	dice, n := t.p.w.dice, len(got.Rows)
	if n > 1 && dice.drawChance(t.p.name+" short "+name, max(t.p.w.shortPages, 0.05)) {
		got.Rows, got.More = got.Rows[:1+dice.drawBelow(t.p.name+" rows "+name, n-1)], true
	}
}

func (t ports) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	answer := make(chan []storage.ETag, 2)
	kept := copyOps(ops)

	if name := t.p.w.posts.noteSent(ops); name != "" && !t.p.isDead() {
		t.p.w.check.reportViolation("given up",
			"%s files %s, which was given up before anything of it was sent", t.p.name, name)
	}

	err := t.p.doOperation(ctx, "transact "+t.as+partition+ops[0].Key, true, func() error {
		if err := t.p.w.refusesRemoval(partition, kept); err != nil {
			return err
		}

		etags, err := t.p.w.writeRows(partition, len(kept), func() ([]storage.ETag, error) {
			return t.p.w.check.applyTransaction(t.p, weir.CallOf(ctx), partition, kept)
		})
		if err == nil {
			answer <- etags
		}

		return t.namesAnother(withoutRandom(ops[0].Key), partition, kept, err)
	})
	if err != nil {
		return nil, err
	}

	return <-answer, nil
}

// copyOps copies operations, because a late transaction must write the values that the operations
// had when it was sent.
func copyOps(ops []storage.Op) []storage.Op {
	out := make([]storage.Op, len(ops))
	for i, op := range ops {
		out[i] = op
		out[i].Values = make(map[string]any, len(op.Values))
		for k, v := range op.Values {
			out[i].Values[k] = v
		}
	}

	return out
}

// leasePort is the access of a process to leases.
type leasePort struct{ p *process }

func (l leasePort) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	asked := time.Now()
	return l.p.doOperation(ctx, "acquire "+name, true, func() error {
		err := l.p.w.account.Leases().Acquire(context.Background(), name, id, length)
		if err == nil {
			l.p.noteGrant(name, asked, length)
		}
		return err
	})
}

func (l leasePort) Renew(ctx context.Context, name, id string) error {
	asked := time.Now()
	return l.p.doOperation(ctx, "renew "+name, true, func() error {
		err := l.p.w.account.Leases().Renew(context.Background(), name, id)
		if err == nil {
			l.p.noteGrant(name, asked, l.p.w.lease)
		}
		return err
	})
}

func (l leasePort) Release(ctx context.Context, name, id string) error {
	return l.p.doOperation(ctx, "release "+name, true, func() error {
		return l.p.w.account.Leases().Release(context.Background(), name, id)
	})
}

// leaseBlobPort is the access of a process to the blobs of leases.
type leaseBlobPort struct{ blobPort }

func (l leaseBlobPort) List(ctx context.Context, prefix, marker string) (page storage.BlobPage,
	err error) {
	err = l.p.doOperation(ctx, "list leases "+prefix, false, func() (err error) {
		page, err = l.p.w.account.Leases().List(context.Background(), prefix, marker)
		return err
	})
	return page, err
}

func (l leaseBlobPort) Delete(ctx context.Context, name string) error {
	return l.p.doOperation(ctx, "delete lease "+name, true, func() error {
		return l.p.w.account.Leases().Delete(context.Background(), name)
	})
}

// queuePort is the access of a process to the queue of tickets.
type queuePort struct {
	storagetest.QueuePort
	p *process
}

func (q queuePort) Put(ctx context.Context, text string, delay time.Duration) error {
	return q.p.doOperation(ctx, "put "+text, true,
		func() error {
			q.p.w.trace.addTicketLine("%s puts ticket %s, visible after %s", q.p.name, text, delay)
			return q.QueuePort.Put(context.Background(), text, delay)
		})
}

// blobPort is the access of a process to the blobs, which have the large bodies.
type blobPort struct{ p *process }

func (b blobPort) Put(ctx context.Context, name string, data []byte) error {
	return b.p.doOperation(ctx, "blob put", true,
		func() error { return b.p.w.account.Blobs().Put(context.Background(), name, data) })
}

func (b blobPort) Get(ctx context.Context, name string) ([]byte, error) {
	var got []byte
	err := b.p.doOperation(ctx, "blob get", false, func() (err error) {
		got, err = b.p.w.account.Blobs().Get(context.Background(), name)
		got, err = b.p.w.readBlocker(name, got, err)
		return err
	})

	return got, err
}

func (b blobPort) Delete(ctx context.Context, name string) error {
	return b.p.doOperation(ctx, "blob delete", true,
		func() error { return b.p.w.account.Blobs().Delete(context.Background(), name) })
}

func (b blobPort) Mark(ctx context.Context, name string) error {
	return b.p.doOperation(ctx, "blob mark", true,
		func() error { return b.p.w.account.Blobs().Mark(context.Background(), name) })
}

func (b blobPort) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	var got storage.BlobPage
	err := b.p.doOperation(ctx, "blob list", false, func() (err error) {
		got, err = b.p.w.account.Blobs().List(context.Background(), prefix, marker)
		return err
	})
	return got, err
}
