package drain

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
)

// candidate is the message chosen next: from the log, or from a block.
type candidate struct {
	entry *lane.Entry
	block *lane.Block // nil when from the log
}

// choose gives the next message that may be sent, nil when there is none now. Due held
// ones and the log take turns, so neither starves the other.
func (r *run) choose(ctx context.Context) (*candidate, error) {
	rows := pageRows
	if r.careful > 0 {
		rows = 1
	}
	select {
	case <-r.wake:
		r.window.more()
	default:
	}
	if err := r.window.refill(ctx, rows); err != nil {
		return nil, err
	}
	r.logNext = !r.logNext
	c, err := r.chooseOnce(ctx)
	if c == nil && err == nil && len(r.gate.avoid) > 0 {
		// Every key had its turn at probing the CMS: begin again.
		clear(r.gate.avoid)
		return r.chooseOnce(ctx)
	}
	return c, err
}

func (r *run) chooseOnce(ctx context.Context) (*candidate, error) {
	if r.logNext {
		if c := r.fromLog(); c != nil {
			return c, nil
		}
		return r.fromBlocks(ctx)
	}
	if c, err := r.fromBlocks(ctx); c != nil || err != nil {
		return c, err
	}
	return r.fromLog(), nil
}

// fromLog gives the log's next whose key is neither blocked nor closed. What is blocked
// is put behind its key's failed message and leaves the window.
func (r *run) fromLog() *candidate {
	passed := map[string]bool{} // keys with an earlier message still in the window
	for i := 0; i < len(r.window.entries); {
		e := r.window.entries[i]
		key := lane.KeyHash(e.Message.Key)
		if b := r.blocks[key]; b != nil && !passed[key] {
			r.holdBack(e, b)
			continue
		}
		if !passed[key] && !r.gate.avoid[key] && !r.committer.isClosed(key) {
			return &candidate{entry: e}
		}
		passed[key] = true
		i++
	}
	return nil
}

// holdBack moves a message whose key is blocked from the log to the block.
func (r *run) holdBack(e *lane.Entry, b *lane.Block) {
	r.window.remove(e)
	b.Held++
	ch := &lane.Change{}
	ch.Hold(b.ID, e)
	ch.Block(*b)
	r.position(ch)
	r.committer.add(ch, false)
}

// fromBlocks gives the first held message of a key whose time has come.
func (r *run) fromBlocks(ctx context.Context) (*candidate, error) {
	b := r.blocks.due(r.Now(), func(b *lane.Block) bool {
		return !r.gate.avoid[b.KeyHash] && !r.committer.isClosed(b.KeyHash)
	})
	if b == nil {
		return nil, nil
	}
	e, err := r.Store.FirstHeld(ctx, r.lane, b.ID)
	if err != nil {
		return nil, fmt.Errorf("read held message: %w", err)
	}
	return &candidate{entry: e, block: b}, nil
}

// release takes a message that became final out of the window or out of its block, whose
// next one may go at once.
func (r *run) release(c *candidate, ch *lane.Change) {
	if c.block == nil {
		r.window.remove(c.entry)
		return
	}
	ch.Unhold(c.block.ID, c.entry)
	if c.block.Held--; c.block.Held <= 0 {
		delete(r.blocks, c.block.ID)
		ch.Unblock(c.block.ID)
		return
	}
	c.block.Next = r.Now()
	ch.Block(*c.block)
}

// postpone makes a message wait until next, and its key with it unless the contract lets
// the others go ahead.
func (r *run) postpone(c *candidate, ch *lane.Change, next time.Time) error {
	b := c.block
	if b == nil {
		b = &lane.Block{ID: c.entry.Block(), KeyHash: lane.KeyHash(c.entry.Message.Key), Held: 1}
		r.blocks[b.ID] = b
		r.window.remove(c.entry)
	}
	b.Next = next
	ch.Block(*b)
	return ch.Retry(c.entry, b.ID, next)
}
