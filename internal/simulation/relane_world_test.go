package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// TestRelane has a simulated world of its own, because the checker of the other simulations knows
// only one epoch.

// town is a simulated world in which the number of lanes changes. It has instances, upstreams, a
// CMS and one storage account.
type town struct {
	dice     *dice
	account  *memory.Account
	faults   float64
	began    time.Time
	trouble  time.Duration // time for which faults go on, from the start
	cms      *recorder
	upstream sync.WaitGroup
	loose    sync.WaitGroup  // goroutines that no caller waits for
	done     context.Context // ends with the town

	mu       sync.Mutex
	slots    []*life // newest process of each instance; nil = no process has started yet
	letters  []*letter
	problems []string
	crashes  int // crashes of instances
	commands int // runs of the command that changes the number of lanes
}

// letter is a message, as its upstream knows it.
type letter struct {
	number    int
	key, body string
	due       time.Duration // time from the post to the due time; 0 = the letter is due at once
	id        weir.ID
}

func (w *town) addProblem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems,
		fmt.Sprintf("%8.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *town) isCalm() bool { return time.Since(w.began) > w.trouble }

// life is one process of an instance, or one run of the command that changes the number of lanes.
type life struct {
	w       *town
	name    string
	store   *lane.Store
	appends *lane.Appender
	drainer *drain.Drainer
	faults  *storagetest.Faults
	ctx     context.Context
	end     context.CancelFunc

	mu     sync.Mutex
	dead   bool
	writes int // number of transactions and lease calls so far
	killAt int // the write with this number kills the process; 0 = no write does
}

func (w *town) newLife(name string) *life {
	p := &life{w: w, name: name, faults: storagetest.NewFaults()}
	p.ctx, p.end = context.WithCancel(w.done)
	p.faults.Set(p.drawFault)
	p.store = &lane.Store{Table: p.faults.Table(w.account.Table()),
		Bodies: p.faults.Blobs(w.account.Blobs()),
		Now:    time.Now, Rand: w.dice.newSource(name + " store")}
	return p
}

// drawFault decides whether an operation fails, and how. At the write with the number killAt it
// kills the process.
func (p *life) drawFault(c storagetest.Call) storagetest.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return storagetest.Fault{Kind: storagetest.FailBefore}
	}

	kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
		storagetest.Late}
	broken := storagetest.Fault{Kind: kinds[p.w.dice.drawBelow(p.name+" kind", 3)],
		Delay: p.w.dice.drawBetween(p.name+" late", time.Millisecond, 20*time.Second)}

	if c.Op == "Transact" || c.Port == "leases" {
		if p.writes++; p.writes == p.killAt {
			p.dead = true
			p.end()
			return broken
		}
	}

	if p.w.isCalm() || !p.w.dice.drawChance(p.name+" fault", p.w.faults) {
		return storagetest.Fault{}
	}

	return broken
}

func (p *life) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// killLife ends the process as SIGKILL does.
func (p *life) killLife() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.closeLife(0)
}

// closeLife ends the process in an orderly way, within a time limit.
func (p *life) closeLife(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if p.drainer != nil {
		_ = p.drainer.Close(ctx) // after the time limit the process ends as if killed
	}
	p.end()
}

func (p *life) newDrainer(store *lane.Store) *drain.Drainer {
	return drain.New(drain.Config{
		Store: store, Leases: p.faults.Leases(p.w.account.Leases()), Sender: &sender{p},
		Tickets: silent{},
		Lease:   townLease, Settle: townSettle,
		Attempts: 3, Backoff: drain.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second},
		Now:  time.Now,
		Rand: p.w.dice.newSource(p.name + " drain"), Log: discardLog,
	})
}

const (
	townLease  = 15 * time.Second
	townSettle = 2 * time.Second
)

// silent takes the place of the ticket sender, and enqueues no tickets.
type silent struct{}

func (silent) Enqueue(context.Context, int) error    { return nil }
func (silent) EnqueueNow(context.Context, int) error { return nil }

// runTown runs the processes of one instance, one after the other, until the town ends. Each
// process starts with the number of lanes and the folding that are in force at its start.
func (w *town) runTown(slot int) {
	for n := 1; w.done.Err() == nil; n++ {
		p := w.newLife(fmt.Sprintf("p%d.%d", slot, n))
		meta, err := epochs.Read(context.Background(), w.newStore().Table)
		if err == nil {
			p.store.Lanes, p.store.Fold = meta.Open.Lanes, meta.Open.Fold
			err = p.store.Open(p.ctx)
		}

		// storage failed, or the number of lanes has just changed: the host starts another process
		if err != nil {
			p.end()
			time.Sleep(w.dice.drawBetween("start again", 500*time.Millisecond, 2*time.Second))
			continue
		}

		p.runLife(slot)
		time.Sleep(w.dice.drawBetween("down", 100*time.Millisecond, 10*time.Second))
	}
}

// runLife runs one process until a kill, the end of its epoch, or the end of the town.
func (p *life) runLife(slot int) {
	w := p.w
	nudge := make(chan struct{}, 1)
	p.drainer = p.newDrainer(p.store)
	p.appends = lane.NewAppender(p.store, discardLog)
	p.appends.OnFiled, p.appends.OnWake = p.drainer.OfferAppended, p.drainer.WakeOffered
	p.appends.OnSealed = func() {
		select {
		case nudge <- struct{}{}:
		default:
		}
	}

	w.mu.Lock()
	w.slots[slot] = p
	w.mu.Unlock()
	w.loose.Go(p.runSweep)

	if !w.isCalm() && w.dice.drawChance(p.name+" killed", 0.6) {
		w.loose.Go(func() {
			time.Sleep(w.dice.drawBetween(p.name+" lives", time.Second, 40*time.Second))
			w.mu.Lock()
			w.crashes++
			w.mu.Unlock()
			p.killLife()
		})
	}

	if err := relane.Watch(p.ctx, p.store, nudge); err != nil &&
		!errors.Is(err, relane.ErrChanged) {
		w.addProblem("%s: watch: %v", p.name, err)
	}

	p.closeLife(10 * time.Second)
}

func (p *life) runSweep() {
	for p.ctx.Err() == nil {
		for number := range p.store.Lanes {
			p.drainer.Wake(number)
		}

		select {
		case <-time.After(time.Minute):
		case <-p.ctx.Done():
		}
	}
}

// newStore returns a store for the open epoch. Its operations do not fail.
func (w *town) newStore() *lane.Store {
	s := &lane.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Now: time.Now}
	if meta, err := epochs.Read(context.Background(), s.Table); err == nil {
		s.UseEpochRecord(meta)
	}
	return s
}

// postLetter posts a letter until an instance accepts the letter. In some cases it then posts the
// letter again. The second post must return the same id.
func (w *town) postLetter(l *letter) {
	name := fmt.Sprint("letter ", l.number)
	m := weir.Message{Contract: "article", Key: l.key, ContentType: "application/xml",
		Body: []byte(l.body)}
	if l.due > 0 {
		m.DueAt = time.Now().Add(l.due)
	}

	for times := 0; w.done.Err() == nil; {
		w.mu.Lock()
		p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))]
		w.mu.Unlock()

		if p != nil && !p.isDead() {
			ctx, cancel := context.WithTimeout(p.ctx, patience)
			r, err := lanetest.AppendAndWake(ctx, p.appends, m, name)
			cancel()

			if err == nil && !p.isDead() {
				if id := r.Message.Public(); !l.id.IsZero() && id != l.id {
					w.addProblem("%s was filed as %+v and as %+v", name, l.id, id)
				} else {
					l.id = id
				}

				if times++; times == 2 || !w.dice.drawChance(name+" again", 0.5) {
					return
				}

				time.Sleep(w.dice.drawBetween(name+" later", time.Second, time.Minute))
				continue
			}
		}

		time.Sleep(w.dice.drawBetween(name+" pause", 200*time.Millisecond, 3*time.Second))
	}
}

// recorder is the simulated CMS. It takes some time for each message, rejects messages whose body
// contains "bad", and records each message that it gets. While the CMS is down, it gets none.
type recorder struct {
	mu     sync.Mutex
	active map[string]string // by folded key: body of the message that the CMS is writing
	log    []entry
	down   func() bool
}

type entry struct {
	id, key, body string
	fence         int64
	at            time.Time
}

// sender sends the messages of one process to the recorder.
type sender struct{ p *life }

func (s *sender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	w, m, started := s.p.w, d.Message, time.Now()
	if s.p.isDead() {
		<-ctx.Done()
		return weir.Result{Outcome: weir.OutcomeNone, StartedAt: started}
	}

	if w.cms.down() {
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "the CMS is down",
			StartedAt: started}
	}

	c, item := w.cms, s.p.store.Fold.Fold(m.Key)
	c.mu.Lock()
	if other, busy := c.active[item]; busy {
		w.addProblem("%s sends %q while %q is being written", s.p.name, m.Body, other)
	}

	c.active[item] = string(m.Body)
	c.log = append(c.log, entry{m.Public().String(), m.Key, string(m.Body), d.Fence, started})
	c.mu.Unlock()
	finished := make(chan struct{})
	w.loose.Go(func() { // the CMS goes on even if the sender gives up
		time.Sleep(w.dice.drawBetween("cms "+m.Key, 5*time.Millisecond, 300*time.Millisecond))
		c.mu.Lock()
		delete(c.active, item)
		c.mu.Unlock()
		close(finished)
	})

	select {
	case <-finished:
	case <-ctx.Done():
		return weir.Result{Outcome: weir.OutcomeNone, Unanswered: true, StartedAt: started}
	}

	if strings.Contains(string(m.Body), "bad") {
		return weir.Result{Outcome: weir.OutcomeRejected, Status: 422, Reason: "bad content",
			StartedAt: started}
	}

	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: started}
}
