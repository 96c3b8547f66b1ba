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

// submission is a message as an upstream sees it: sent until it is answered.
type submission struct {
	key, idem string
	message   weir.Message
	sent      int     // calls made
	id        weir.ID // as acknowledged
}

// sendMessages lets upstreams send at moments of the seed, in bursts and alone.
func (w *world) sendMessages(ctx context.Context) {
	at := time.Duration(0)
	for i := range w.messages {
		if !w.dice.chance("burst", 0.7) {
			at += w.dice.between("gap", 100*time.Millisecond, w.trouble/6)
		}
		s := w.submission(i)
		start := min(at, w.trouble) + w.dice.between("apart", 0, 30*time.Millisecond)
		w.check.expect(s)
		w.upstream.Go(func() {
			time.Sleep(start)
			w.send(ctx, i, s)
		})
	}
}

func (w *world) submission(i int) *submission {
	key := fmt.Sprint("k", w.dice.below("key", w.keys))
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml", Body: w.body(i)}
	switch kind := key[1] % 4; {
	case kind == 2:
		m.Skip = true
	case kind == 3:
		m.Contract, m.Supersede, m.Version = "edit", true, fmt.Sprint(w.dice.below("version", 20))
	}
	s := &submission{key: key, message: m}
	if w.dice.chance("idempotent", 0.6) {
		s.idem = fmt.Sprint("idem", i)
	}
	return s
}

// body says which submission it is. A large one does not compress, so it needs a blob.
func (w *world) body(i int) []byte {
	b := []byte(fmt.Sprintf("<a n='%d'>", i))
	if w.dice.chance("large", w.large) {
		noise := rand.NewPCG(w.dice.seed, uint64(i))
		for range 8 << 10 {
			b = binary.LittleEndian.AppendUint64(b, noise.Uint64())
		}
	}
	return b
}

// numberOf reads which submission a body is.
func numberOf(body string) (n int, err error) {
	_, err = fmt.Sscanf(body, "<a n='%d'>", &n)
	return n, err
}

// send sends a message to some instance until it is answered with 202. What has no
// idempotency key is sent once: to send it again would be another message.
func (w *world) send(ctx context.Context, i int, s *submission) {
	for range 40 {
		s.sent++
		p := w.slots[w.dice.below(fmt.Sprint("to ", i), len(w.slots))].now()
		r, err := w.call(ctx, p, s)
		if err == nil {
			w.check.acknowledged(s, r)
			w.trace.add("%s filed message %d as lane %d seq %d (duplicate %v)", p.name, i, r.Message.ID.Lane, r.Message.ID.Seq, r.Duplicate)
			time.Sleep(w.dice.between(fmt.Sprint("ring ", i), 0, 200*time.Microsecond))
			p.bell.RingSoon(r.Message.ID.Lane)
			return
		}
		w.trace.add("%s: message %d not answered: %v", p.name, i, err)
		if s.idem == "" {
			return
		}
		time.Sleep(w.dice.between(fmt.Sprint("again ", i), 200*time.Millisecond, 3*time.Second))
	}
}

// patience is how long an upstream waits for an answer.
const patience = 12345 * time.Millisecond

// call is one HTTP request of the upstream.
func (w *world) call(ctx context.Context, p *process, s *submission) (lane.Receipt, error) {
	type answer struct {
		r   lane.Receipt
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got := make(chan answer, 1)
	w.loose.Go(func() {
		r, err := p.appends.Append(ctx, s.message, s.idem)
		if p.running(ctx) {
			got <- answer{r, err}
		}
	})
	select {
	case a := <-got:
		return a.r, a.err
	case <-time.After(patience + time.Millisecond): // it stands still
		return lane.Receipt{}, context.DeadlineExceeded
	case <-p.killed:
		return lane.Receipt{}, errLost
	}
}
