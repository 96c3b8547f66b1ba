package simulation_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// submission is a message that an upstream posts.
type submission struct {
	number    int
	key, idem string // ordering key; idempotency key, empty = none
	message   weir.Message
	id        weir.ID // the id in the answer; zero = no answer yet
}

// sendMessages lets upstreams post messages at drawn times, in bursts and one by one.
func (w *world) sendMessages(ctx context.Context) {
	at := time.Duration(0)
	for i := range w.messages {
		if !w.dice.drawChance("burst", 0.7) {
			at += w.dice.drawBetween("gap", 100*time.Millisecond, w.trouble/6)
		}

		s := w.newSubmission(i)
		start := min(at, w.trouble) + w.dice.drawBetween("apart", 0, 30*time.Millisecond)
		if w.sizes.kind != "" {
			start = w.sizes.startOf(w, i)
		}

		if w.leaving.kind != "" {
			start = w.drawMoveStart(i, s.key)
		}

		s.message.DueAt = w.dueFor(s, start)
		w.check.expectSubmission(s)
		w.upstream.Go(func() {
			time.Sleep(start)
			w.sendUntilAccepted(ctx, fmt.Sprint(i), s)
			w.sendOther(ctx, s)
			w.changeMessage(ctx, s)
		})

		if s.idem != "" && w.dice.drawChance("double", 0.2) {
			again := start + w.dice.drawBetween("double", time.Microsecond,
				[]time.Duration{time.Millisecond, 10 * time.Second}[w.dice.drawBelow("double", 2)])
			w.upstream.Go(func() {
				time.Sleep(again)
				w.sendUntilAccepted(ctx, fmt.Sprint(i, " double"), s)
			})
		}
	}
}

func (w *world) newSubmission(i int) *submission {
	key := w.drawMoveKey()
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: w.newBody(i)}

	switch kind := key[1] % 4; {
	case w.leaving.kind != "":
	case kind == 2:
		m.Skip = true
	case kind == 3 && (w.chains.needsOneContract() || !w.dice.drawChance("no edit", 0.15)):
		m.Contract, m.Supersede, m.Version = "edit", true,
			fmt.Sprint(w.dice.drawBelow("version", 20))
		if w.dice.drawChance("version with a dot", 0.2) {
			// 1.5 is older than 1.15, and would be newer as a decimal fraction
			m.Version = "1." + m.Version
		}

		if w.dice.drawChance("huge version", 0.06) {
			m.Version = hugeVersion
		}
	}

	key = w.spellKey(key)
	m.Key = key
	if w.dice.drawChance("callback", w.callbacks) {
		m.Callback = hookURL
	}

	s := &submission{number: i, key: key, message: m}
	if w.dice.drawChance("idempotent", 0.6) {
		s.idem = fmt.Sprint("idem", i)
	}

	return s
}

// newBody returns a body with the submission's number. In some cases it adds random bytes: the body
// is then too large for a row even if it is compressed, and needs a blob.
func (w *world) newBody(i int) []byte {
	b := []byte(fmt.Sprintf("<a n='%d'>%s", i, w.closingTag()))
	if w.dice.drawChance("large", w.large) {
		noise := rand.NewPCG(w.dice.seed, uint64(i))
		for range 8 << 10 {
			b = binary.LittleEndian.AppendUint64(b, noise.Uint64())
		}
	}

	return b
}

// closingTag returns the end tag of a body. It returns "" in worlds without chains, because nothing
// parses bodies there.
func (w *world) closingTag() string {
	if w.chains.isOn {
		return "</a>"
	}
	return ""
}

// numberOf reads the submission's number from a body.
func numberOf(body string) (n int, err error) {
	_, err = fmt.Sscanf(body, "<a n='%d'>", &n)
	return n, err
}

// sendUntilAccepted posts a message to drawn instances, up to 40 times, until one of them accepts
// it. A message without an idempotency key is posted only once, because a second post could append
// it twice.
func (w *world) sendUntilAccepted(ctx context.Context, name string, s *submission) {
	for range 40 {
		p := w.pickReceiver(name).currentProcess()
		sent := time.Now()
		r, err := w.postOnce(ctx, p, name, s)
		if err == nil {
			w.check.recordPost(s, sent, &r)
			w.check.noteAcknowledged(s, r)
			w.trace.addLine("%s filed message %s as lane %d seq %d (duplicate %v)", p.name, name,
				r.Message.ID.Lane, r.Message.ID.Seq, r.Duplicate)
			time.Sleep(w.dice.drawBetween("ring "+name, 0, 200*time.Microsecond))
			p.bell.EnqueueAsync(r.Message.ID.Lane)
			return
		}

		w.check.recordPost(s, sent, nil)
		w.trace.addLine("%s: message %s not answered: %v", p.name, name, err)
		if s.idem == "" {
			return
		}

		time.Sleep(w.dice.drawBetween("again "+name, 200*time.Millisecond, 3*time.Second))
	}
}

// sendOther posts another body with the idempotency key of an accepted message, in some cases. It
// checks that an instance refuses that post.
func (w *world) sendOther(ctx context.Context, s *submission) {
	if s.idem == "" || w.check.idOf(s).IsZero() || !w.dice.drawChance("other", 0.1) {
		return
	}

	other := submission{message: s.message, idem: s.idem}
	other.message.Body = []byte("another")
	p := w.slots[w.dice.drawBelow("other to", len(w.slots))].currentProcess()
	if r, err := w.postOnce(ctx, p, fmt.Sprint(s.number, " other"), &other); err == nil &&
		!w.check.mayBeErased(s) {
		w.check.reportViolation("twice",
			"another body under an idempotency key that is taken was answered with %+v",
			r.Message.ID)
	}
}

// receiveMessage appends a message, and then wakes the message's lane, even if the upstream has
// given up. The wake comes after a drawn delay, because the real receiver first writes the answer.
// A duplicate wakes no lane.
func (p *process) receiveMessage(ctx context.Context, name string, m weir.Message,
	idem string) (lane.Receipt, error) {
	r, err := p.appends.Append(ctx, m, idem)
	if err == nil && !r.Duplicate {
		p.w.loose.Go(func() {
			time.Sleep(p.w.dice.drawBetween("wake "+name, 0, 200*time.Microsecond))
			if p.awaitRunning("wake " + name) {
				p.drainer.WakeOffered(r.Message.ID.Lane)
			}
		})
	}

	return r, err
}

// postOnce makes one HTTP request that posts a message.
func (w *world) postOnce(ctx context.Context, p *process, name string,
	s *submission) (lane.Receipt, error) {
	m := s.message
	m.Contract = p.store.Contracts.PresentName(m.Contract)
	m.TraceState = w.posts.beginPost(name)
	r, err := askWithin(ctx, p, name, w.patienceFor(name),
		func(ctx context.Context) (lane.Receipt,
			error) {
			return p.receiveMessage(ctx, name, m, s.idem)
		})
	if err != nil {
		w.posts.giveUp(m.TraceState)
	}

	return r, err
}
