package drain

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// candidate is the message chosen next: from the log, or from a block.
type candidate struct {
	entry *lane.Entry
	block *lane.KeyBlock // nil when from the log
	last  string         // place of the key's last delivery, where it may be behind this one; see run.lastOf
}

// choose gives the next message that may be sent, nil when there is none now. Where the
// log is still being read it waits for that.
func (r *run) choose(ctx context.Context) (*candidate, error) {
	for {
		select {
		case <-r.wake:
			r.window.woken()
		default:
		}
		r.window.careful = r.careful > 0
		if err := r.readOn(ctx); err != nil {
			return nil, err
		}
		if c, err := r.chooseOnce(ctx); c != nil || err != nil {
			return c, err
		}
		if r.isAsideFull() {
			r.window.readFurther(ctx)
			return nil, nil
		}
		if r.window.reading != nil {
			r.committer.flush() // idle meanwhile
		}
		if waited, err := r.awaitPage(ctx); waited && err == nil {
			continue
		} else if err != nil {
			return nil, err
		}
		if again, err := r.beginRound(ctx); !again || err != nil {
			return nil, err
		}
	}
}

// readOn reads on in the log: to its end if the CMS refuses one message after the other.
func (r *run) readOn(ctx context.Context) error {
	if err := r.window.fill(ctx); err != nil || !r.gate.looksFar() {
		return err
	}
	return r.lookFar(ctx)
}

// lookFar reads on to the end of the log, as far as memory allows, without bodies: refused
// messages stay in the window, and the CMS may take one behind them.
func (r *run) lookFar(ctx context.Context) error {
	for !r.window.isWhole() {
		r.window.dropBodies()
		r.window.readFurther(ctx)
		if _, err := r.awaitPage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// chooseOnce takes turns between the log and the blocks. The turn follows the last choice, not the
// number of looks: so the first of many that fall due waits for the one request under way, and not
// for another from the log.
func (r *run) chooseOnce(ctx context.Context) (c *candidate, err error) {
	first, second := r.fromBlocks, r.fromLog
	if r.logNext {
		first, second = second, first
	}
	if c, err = first(ctx); c == nil && err == nil {
		c, err = second(ctx)
	}
	if c != nil {
		r.logNext = c.block != nil
	}
	return c, err
}

// fromLog gives the log's next whose key is neither blocked nor closed, or what supersedes
// it. While attempts fail one after the other it is the last such key every other time:
// however many are refused in front, others have their turn.
func (r *run) fromLog(ctx context.Context) (*candidate, error) {
	uneven := r.gate.uneven > 0
	atEnd := uneven && r.fromEnd
	waits := map[string]bool{} // keys whose newest version has to wait
	for {
		i := r.freeInLog(atEnd, waits)
		if i < 0 {
			return nil, nil
		}
		e := r.window.entries[i]
		if e.Message.Supersede {
			var err error
			if e, err = r.newestFrom(ctx, i); err != nil {
				return nil, err
			}
		}
		if e != nil && r.awaitsRelease(e) {
			waits[e.KeyHash()] = true
			continue
		}
		if e != nil {
			r.fromEnd = uneven && !atEnd
			return &candidate{entry: e}, nil
		}
	}
}

// freeInLog returns the place in the window of the first message, or of the last one, that may be
// sent; -1 = there is none now. A blocked message is put behind its key's failed one and leaves
// the window. It stays if the committer has to catch up first.
func (r *run) freeInLog(atEnd bool, waits map[string]bool) int {
	passed, ahead := map[string]bool{}, r.blocks.ahead() // keys with an earlier message still in the window, or in a block
	now := r.Now()                                       // for all alike: where a pause ends meanwhile, nothing overtakes what was shelved
	last := -1
	for i := 0; i < len(r.window.entries); {
		e := r.window.entries[i]
		key := e.KeyHash()
		switch {
		case passed[key]:
			i++
		case waits[key] || r.isShut(key) || r.awaitsRelease(e):
			passed[key] = true
			i++
		case (r.blocks[key] != nil || e.Message.Supersede || r.keyPaused(key, now)) && r.isAsideFull():
			passed[key] = true
			i++
		case r.keyPaused(key, now):
			r.shelve(e)
		case ahead[key] != nil && 2*e.Seq() >= ahead[key].Rank():
			passed[key] = true
			i++
		case r.blocks[key] != nil && e.Seq() >= r.blocks[key].From:
			r.holdBack(e, r.blocks[key])
		case r.gate.avoid[key] || r.committer.isClosed(key):
			passed[key] = true
			i++
		case atEnd:
			passed[key], last = true, i
			i++
		default:
			return i
		}
	}
	return last
}

// isAsideFull reports whether the committer has to catch up before more messages are put aside
// without an attempt: until they are committed they are in memory, and no wish is granted.
func (r *run) isAsideFull() bool { return r.committer.load() >= maxAside }

// holdBack moves a message whose key is blocked from the log to the block.
func (r *run) holdBack(e *lane.Entry, b *lane.KeyBlock) {
	r.window.remove(e)
	b.HeldCount++
	ch := &lane.Change{}
	ch.Hold(b.ID, e)
	ch.SaveBlock(*b)
	if b.Mixed {
		// It may stand before what is the first now, so the line is not read until it is there.
		b.First, ch.Key = nil, b.KeyHash
	}
	r.position(ch)
	r.committer.add(ch, false)
}

// fromBlocks gives the first held message of a key whose time has come, or what supersedes
// it.
func (r *run) fromBlocks(ctx context.Context) (*candidate, error) {
	for {
		now, ahead := r.Now(), r.blocks.ahead()
		b := r.blocks.due(now, func(b *lane.KeyBlock) bool {
			return !r.gate.avoid[b.KeyHash] && !r.committer.isClosed(b.KeyHash) && !r.isShut(b.KeyHash) && !r.keyPaused(b.KeyHash, now) &&
				(b.LogWaitsFrom == 0 || ahead[b.KeyHash] == b) && r.reached(b)
		})
		if b == nil {
			return nil, nil
		}
		e, err := r.firstHeld(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("read held message: %w", err)
		}
		if e != nil && r.ripeNow(b, e) {
			return &candidate{entry: e, block: b}, nil
		}
	}
}

// ripeNow says whether a block's first message may go: not before its moment, where it was
// released a moment ago, nor before its retry, where one replayed in front of it is done,
// and not before what the log has of its key up to its place.
func (r *run) ripeNow(b *lane.KeyBlock, e *lane.Entry) bool {
	if next := e.NextAttempt(); next.After(r.Now()) && !isFarAhead(next, r.Now()) {
		r.putOff(b, e)
		return false
	}
	if e.Message.DueAt.After(r.Now()) {
		b.NextAt = e.Message.DueAt
		return false
	}
	if r.awaitsRelease(e) {
		r.releases.await(b.KeyHash)
		return false
	}
	return r.reached(b)
}

// firstHeld reads the message of a block that is next in order; nil when it turned out to
// be superseded, and the block waits for that to be committed.
func (r *run) firstHeld(ctx context.Context, b *lane.KeyBlock) (*lane.Entry, error) {
	if b.First != nil && !b.First.Message.Supersede {
		b.From = b.First.AfterLog()
		return b.First, nil
	}
	line, err := r.Store.ReadHeld(ctx, r.lane, b.ID, 1)
	if err != nil {
		return nil, err
	}
	b.From = line[0].AfterLog()
	e, err := r.Store.ReadMessage(ctx, r.lane, line[0].Seq)
	if err != nil || !e.Message.Supersede {
		return e, err
	}
	return r.newestHeld(ctx, b, e)
}

// dismiss takes a message that became final out of the window or out of its block, whose
// next one may go at once.
func (r *run) dismiss(c *candidate, ch *lane.Change) {
	if c.block == nil {
		r.window.remove(c.entry)
		return
	}
	r.unhold(c.block, ch, c.entry.AsHeld())
}

// unhold takes messages out of a block's line.
func (r *run) unhold(b *lane.KeyBlock, ch *lane.Change, gone ...lane.HeldMessage) {
	for _, h := range gone {
		ch.Unhold(b.ID, h.OrderPos)
	}
	b.Advance(gone)
	if b.HeldCount -= int64(len(gone)); b.HeldCount <= 0 {
		delete(r.blocks, b.ID)
		ch.RemoveBlock(b.ID)
		return
	}
	b.NextAt = r.Now()
	if b.First != nil {
		b.NextAt = later(b.NextAt, b.First.Message.DueAt)
	}
	ch.SaveBlock(*b)
}

// blockFor gives the block of a message from the log that has to wait: a new one, or the
// one in which others wait that go behind it.
func (r *run) blockFor(e *lane.Entry) *lane.KeyBlock {
	b := r.blocks[e.BlockID()]
	if b == nil {
		b = &lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash()}
		r.blocks[b.ID] = b
	}
	b.HeldCount++
	b.From = 0 // all that the window has of the key is put into the line
	return b
}

const (
	// keptBody and keptMost bound what a holder keeps in memory of messages that wait for a
	// retry, so that the retry itself begins at its time and not with reading.
	keptBody = 16 << 10
	keptMost = 64
)

// keep gives the message back when it may stay in memory until its retry.
func (r *run) keep(e *lane.Entry) *lane.Entry {
	if len(e.Message.Body) > keptBody || r.kept() >= keptMost {
		return nil
	}
	return e
}

func (r *run) kept() int {
	n := 0
	for _, b := range r.blocks {
		if b.First != nil && b.First.Stage == weir.Retrying {
			n++
		}
	}
	return n
}

// postpone makes a message wait until next, and its key with it unless the contract lets
// the others go ahead.
func (r *run) postpone(c *candidate, ch *lane.Change, next time.Time) error {
	b := c.block
	if b == nil {
		b = r.blockFor(c.entry)
		r.window.remove(c.entry)
	}
	b.NextAt, b.LogWaitsFrom, b.IsParked, b.First = next, 0, false, r.keep(c.entry)
	ch.SaveBlock(*b)
	return ch.Retry(c.entry, b.ID, next)
}
