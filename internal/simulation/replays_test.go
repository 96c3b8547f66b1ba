package simulation_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// replaying is the checker's knowledge of one message's replays.
type replaying struct {
	requests map[string]bool // requests in storage, by key of their row; true = forced
	// the call that made the last request; "" = a bulk replay, or a call without an id
	call    string
	replays int
	revived time.Time // when a holder last took the message back into delivery
	base    int       // number of attempts before the last replay
	edited  string    // the body after an edit; "" = no edit
	// editedBlob is the name of the blob with the edited body; "" = there is no such blob.
	editedBlob string
	died       time.Time // when the message last became dead in storage
}

// drawReplays draws the number of operators who replay messages, and the shares of replays that are
// forced or change the body.
func (s *settings) drawReplays(d *dice) {
	if d.drawChance("replays", 0.5) {
		s.operators = 2 + d.drawBelow("operators", 20)
		s.forces, s.edits = []float64{0, 0.2, 0.5}[d.drawBelow("forces", 3)],
			[]float64{0, 0.3}[d.drawBelow("edits", 2)]
	}
}

// startOperators lets operators look for dead messages and replay some of them.
func (w *world) startOperators(ctx context.Context) {
	for i := range w.operators {
		name := fmt.Sprint("operator ", i)
		at := w.dice.drawBetween(name, time.Second, w.trouble+30*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			for _, s := range w.check.listDead() {
				if w.dice.drawChance(name+" picks", 0.5) {
					w.replayMessage(ctx, name, s)
				}
			}
		})
	}
}

// listDead lists the submissions that are dead now.
func (c *checker) listDead() (dead []*submission) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, s := range c.expected {
		if s.id.IsZero() || s.id.Seq > int64(len(c.laneOf(s.id.Lane).log)) {
			continue
		}
		if c.stageOf(c.laneOf(s.id.Lane).log[s.id.Seq-1]) == weir.Dead {
			dead = append(dead, s)
		}
	}

	return dead
}

// replayMessage asks drawn instances for a replay, up to five times, until one of them accepts or
// refuses it.
func (w *world) replayMessage(ctx context.Context, name string, s *submission) {
	id := w.check.idOf(s)
	o := lane.ReplayOptions{Force: w.dice.drawChance(name+" force", w.forces)}
	if w.dice.drawChance(name+" edits", w.edits) {
		o.Edit = w.newCorrection(name, s)
	}

	for try := range 5 {
		call := weir.WithCall(ctx, fmt.Sprint(name, " ", s.number, " ", try))
		p, st, err := w.askForReplay(call, name, id, o)

		// The error can end with an id that does not come from the seed. The trace must not have
		// that id, because all runs of a seed must have the same trace.
		text, _, _ := strings.Cut(fmt.Sprint(err), "delivered: ")
		w.trace.addLine("%s: %s replays lane %d seq %d (force %v, edit %v): %s, %s", p.name, name,
			id.Lane, id.Seq, o.Force, o.Edit != nil, st.Stage, text)
		if err == nil {
			p.lookAtLane(id.Lane)
		}

		if err == nil && w.dice.drawChance(name+" host repeats", 0.3) {
			time.Sleep(w.dice.drawBetween(name+" host repeats in", 0, 30*time.Second))
			_, _, err := w.askForReplay(call, name, id, o)
			w.trace.addLine("%s: the host repeats the replay of lane %d seq %d: %d", p.name,
				id.Lane, id.Seq, weir.KindOf(err))
			return
		}

		if w.check.replayAnswered(id, err) {
			return
		}

		time.Sleep(w.dice.drawBetween(name+" again", 200*time.Millisecond, 3*time.Second))
	}
}

// askForReplay asks a drawn instance once for a replay.
func (w *world) askForReplay(ctx context.Context, name string, id weir.ID,
	o lane.ReplayOptions) (*process, weir.Status, error) {
	p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))].currentProcess()
	st, err := askProcess(ctx, p, name, func(ctx context.Context) (weir.Status, error) {
		return p.store.Requests().Replay(ctx, id, o)
	})
	return p, st, err
}

// newCorrection returns an edit of a message: another body and, in some cases, another version.
// Only messages whose contract has supersede get another version.
func (w *world) newCorrection(name string, s *submission) *lane.Edit {
	body := []byte(fmt.Sprintf("<a n='%d'>corrected by %s%s", s.number, name, w.closingTag()))
	if w.dice.drawChance(name+" large", w.large) {
		noise := rand.NewPCG(w.dice.seed, uint64(s.number)+1000)
		for range 8 << 10 {
			body = binary.LittleEndian.AppendUint64(body, noise.Uint64())
		}
	}

	e := &lane.Edit{Body: body, ContentType: "text/xml", Version: s.message.Version, Note: name}
	if s.message.Supersede && w.dice.drawChance(name+" version", 0.5) {
		e.Version = fmt.Sprint(w.dice.drawBelow(name+" version", 20))
	}

	return e
}

// isRequested reports whether a request for a replay is in storage.
func (r *replaying) isRequested() bool { return len(r.requests) > 0 }

// isForced reports whether a request for a forced replay is in storage.
func (r *replaying) isForced() bool {
	for _, forced := range r.requests {
		if forced {
			return true
		}
	}
	return false
}

// noteReplayRequest checks and records a new request in storage to replay a message. A call that
// the host repeats makes one request. Only the last call is known: after the request of another
// call, a repeat of an earlier one counts as new.
func (c *checker) noteReplayRequest(f *filed, call string, op storage.Op) {
	if call != "" && call == f.call {
		c.addViolation("replayed",
			"a repeat of the call that replayed seq %d of lane %d replays it again", f.id.Seq,
			f.id.Lane)
	}

	f.call = call
	force, _ := op.Values["Force"].(bool)
	if f.isRequested() && (f.isForced() || !force) {
		c.addViolation("replayed", "a second replay of seq %d of lane %d was filed",
			f.id.Seq, f.id.Lane)
	}

	if s := c.stageOf(f); s != weir.Dead {
		c.addViolation("replayed", "a replay of seq %d of lane %d was filed, which is %s", f.id.Seq,
			f.id.Lane, s)
	}

	if f.requests == nil {
		f.requests = map[string]bool{}
	}

	f.requests[op.Key] = force
}

// checkGranted checks a commit that grants or refuses replays, and returns the number of granted
// replays. The rules are:
//   - Each replay was requested.
//   - A replay is granted only if it is forced, or if no later message of its key was delivered.
//   - A replay is refused only if it is not forced, and a later message of its key was delivered.
func (c *checker) checkGranted(p *process, l *laneState, ops []storage.Op) (taken int64) {
	done := map[string]*filed{}
	for _, op := range ops {
		switch {
		case strings.HasPrefix(op.Key, "w_replay_"):
			seq, _, _ := strings.Cut(op.Key[len("w_replay_"):], "_")
			done[op.Key] = l.log[seqOf("m_"+seq)-1]
		case strings.HasPrefix(op.Key, "m_") && op.Values["Replays"] != nil:
			c.checkTakenBack(p, l, l.log[seqOf(op.Key)-1], op.Values)
			taken++
		case strings.HasPrefix(op.Key, "m_") && op.Values["ReplayRefused"] != nil:
			if f := l.log[seqOf(op.Key)-1]; !c.isRefusable(l, f, ops) {
				c.addViolation("replayed",
					"%s refused to replay seq %d of lane %d without a reason", p.name, f.id.Seq,
					f.id.Lane)
			}
			c.counts.Refused++
		}
	}

	for row, f := range done {
		if _, asked := f.requests[row]; !asked {
			c.addViolation("replayed",
				"%s granted a replay of seq %d of lane %d that was not asked for", p.name,
				f.id.Seq, f.id.Lane)
		}
		delete(f.requests, row)
	}

	return taken
}

// isRefusable reports whether a commit is right to refuse a replay.
func (c *checker) isRefusable(l *laneState, f *filed, ops []storage.Op) bool {
	for _, op := range ops {
		if forced, asked := f.requests[op.Key]; asked && !forced {
			return c.deliveredBehind(l, f, true) != nil
		}
	}
	return false
}

// checkTakenBack checks and records one replay that a commit grants.
func (c *checker) checkTakenBack(p *process, l *laneState, f *filed, v map[string]any) {
	n, _ := v["Replays"].(int64)
	base, _ := v["Base"].(int64)
	c.counts.Replayed++

	// A later message that was delivered does not prevent the replay if the later message's version
	// was forgotten.
	switch o := c.deliveredBehind(l, f, false); {
	case !f.isRequested() || int(n) != f.replays+1:
		c.addViolation("replayed",
			"%s took back seq %d of lane %d (replay %d), asked for: %v, after %d", p.name,
			f.id.Seq, f.id.Lane, n, f.isRequested(), f.replays)

	case o != nil && !f.isForced():
		c.addViolation("replayed", "%s took back seq %d of key %s, and seq %d was delivered",
			p.name, f.id.Seq, f.key, o.id.Seq)
	}

	f.replays, f.base, f.revived, f.trying = int(n), int(base), time.Now(), trying{}
	if v["EditedAt"] == nil {
		return
	}

	c.counts.Edited++
	packed, _ := v["Edited"].([]byte)
	f.editedBlob, _ = v["EditedBlob"].(string)
	if blob := f.editedBlob; blob != "" {
		var err error
		if packed, err = c.w.account.Blobs().Get(context.Background(), blob); err != nil {
			c.addViolation("content", "seq %d of lane %d was edited, and %s is not there: %v",
				f.id.Seq, f.id.Lane, blob, err)
		}
	}

	body, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		c.addViolation("content", "seq %d of lane %d: %v", f.id.Seq, f.id.Lane, err)
	}

	f.edited = string(body)
	if f.edit {
		f.versionText, _ = v["EditedVersion"].(string)
		f.version, _ = weir.ParseVersion(f.versionText)
	}
}

// deliveredBehind returns a delivered message that has the same key as f and a later position. It
// returns nil if no such message exists, or if the contract of f has onFailure: skip. Messages
// whose version was forgotten count only if withForgotten is true.
func (c *checker) deliveredBehind(l *laneState, f *filed, withForgotten bool) *filed {
	for _, o := range l.log {
		if !f.skip && o.item == f.item && !o.waits && o.placeInOrder() > f.placeInOrder() &&
			(withForgotten || !o.forgotten) && c.stageOf(o) == weir.Delivered {
			return o
		}
	}
	return nil
}

// replayAnswered checks the answer to a request for a replay. It returns false if the caller must
// ask again.
func (c *checker) replayAnswered(id weir.ID, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.findFiled(id)
	if f == nil {
		return true
	}

	switch conflict := weir.KindOf(err) == weir.Conflict; {
	case err == nil && !f.isRequested() && f.replays == 0 &&
		c.deliveredBehind(c.laneOf(id.Lane), f, true) == nil:
		c.addViolation("replayed",
			"the replay of seq %d of lane %d was accepted, and storage has no request",
			id.Seq, id.Lane)

	case conflict && strings.Contains(err.Error(), "later message") &&
		c.deliveredBehind(c.laneOf(id.Lane), f, true) == nil:
		c.addViolation("replayed",
			"the replay of seq %d of lane %d was refused without a reason: %v", id.Seq, id.Lane,
			err)
	}

	return err == nil || weir.KindOf(err) == weir.Conflict
}
