package stay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/residence/stay"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/ticket"
)

// These are settings of host.json. A host takes batchSize tickets at once, and takes the next ones
// when it has newBatchThreshold tickets or fewer.
const (
	batchSize         = 16
	newBatchThreshold = 8
)

// town stands for the app: a queue, instances that enqueue and answer tickets, and the lanes that
// they drain.
type town struct {
	queue     *countedQueue
	instances int

	mu    sync.Mutex
	lanes []townLane
	late  time.Duration // the longest time that work waited for a look at its lane
}

// townLane is a lane that gets a message each second.
type townLane struct {
	holder int           // the instance that drains it; -1 = none
	work   time.Time     // the time of the first message after the last drain; zero = no message
	until  time.Time     // the time at which the drain for this work ends
	freed  chan struct{} // closed when the lane's present or last drain ends
}

// countedQueue counts its tickets by their text. It also counts tickets that are not visible yet.
type countedQueue struct {
	*memory.Queue
	mu    sync.Mutex
	count map[string]int
}

func (q *countedQueue) Put(ctx context.Context, text string, delay time.Duration) error {
	q.mu.Lock()
	q.count[text]++
	q.mu.Unlock()
	return q.Queue.Put(ctx, text, delay)
}

func (q *countedQueue) Delete(ctx context.Context, m storage.QueueMessage) error {
	q.mu.Lock()
	q.count[m.Text]--
	q.mu.Unlock()
	return q.Queue.Delete(ctx, m)
}

// countTickets returns the most frequent text of the tickets, the number of tickets with this text,
// and the number of all tickets.
func (q *countedQueue) countTickets() (text string, most, all int) {
	q.mu.Lock()
	defer q.mu.Unlock()

	for t, n := range q.count {
		all += n
		if n > most {
			text, most = t, n
		}
	}

	return text, most, all
}

// drainer implements stay.Drainer and stay.Permit for one instance.
type drainer struct {
	*town
	me int
}

func (d drainer) Look(_ context.Context, number int) drain.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := &d.lanes[number], time.Now()
	switch {
	case l.holder == d.me:
		return drain.Report{State: drain.Working}
	case l.holder >= 0:
		return drain.Report{State: drain.Busy}
	case l.work.IsZero():
		return drain.Report{State: drain.Idle}
	}

	d.late = max(d.late, now.Sub(l.work))
	l.holder, l.work, l.freed = d.me, time.Time{}, make(chan struct{})
	time.AfterFunc(l.until.Sub(now), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		l.holder = -1
		close(l.freed)
	})

	return drain.Report{State: drain.Working}
}

// Claim waits until the lane is free, or until 15 s have passed. No holder hands its lane over,
// because each holder of this test has an invocation.
func (d drainer) Claim(ctx context.Context, number int) drain.Report {
	d.mu.Lock()
	freed := d.lanes[number].freed
	d.mu.Unlock()
	timer := time.NewTimer(15 * time.Second)
	defer timer.Stop()

	select {
	case <-freed:
		return d.Look(ctx, number)
	case <-timer.C:
	case <-ctx.Done():
	}

	return drain.Report{State: drain.Busy}
}

// These methods do nothing, because no process of this test hands a lane over.
func (drainer) Attend()      {}
func (drainer) Yield()       {}
func (drainer) HandOver(int) {}
func (drainer) StopTaking()  {}

// Held returns no lane: each drain of this test begins with a ticket, so stay.Answerer knows all
// lanes without Held.
func (drainer) Held() []int { return nil }

func (d drainer) Join(ctx context.Context, number int) drain.Report {
	d.mu.Lock()
	l := &d.lanes[number]
	mine, freed := l.holder == d.me, l.freed
	d.mu.Unlock()
	if !mine {
		return drain.Report{State: drain.Idle}
	}

	select {
	case <-freed:
		return drain.Report{State: drain.Idle}
	case <-ctx.Done():
		return drain.Report{State: drain.Working}
	}
}

// appendEachSecond appends a message to each lane each second, at one instance. If a lane has
// neither a holder nor work, the message becomes the work of the lane. The result of busyFor is the
// time from this message to the end of the drain.
func (w *town) appendEachSecond(ctx context.Context, bell *ticket.Sender,
	busyFor func() time.Duration) {
	for ctx.Err() == nil {
		for number := range w.lanes {
			w.mu.Lock()
			if l := &w.lanes[number]; l.holder < 0 && l.work.IsZero() {
				l.work, l.until = time.Now(), time.Now().Add(busyFor())
			}
			w.mu.Unlock()
			bell.EnqueueAsync(number)
		}

		sleepFor(ctx, time.Second)
	}
}

// runHost takes tickets as the Functions host does; see batchSize. If the queue has no visible
// ticket, runHost waits for the time "idle".
func (w *town) runHost(ctx context.Context, f *stay.Answerer, idle time.Duration) {
	var running atomic.Int64
	for ctx.Err() == nil {
		if running.Load() > newBatchThreshold {
			sleepFor(ctx, 100*time.Millisecond)
			continue
		}

		got, _ := w.queue.Get(ctx, batchSize, 10*time.Minute)
		for _, m := range got {
			running.Add(1)
			go func() {
				defer running.Add(-1)
				_, number, err := ticket.Decode(m.Text)
				sleepFor(ctx, 20*time.Millisecond) // the time that the host and storage take
				if err == nil && f.Answer(ctx, number) == nil {
					_ = w.queue.Delete(context.WithoutCancel(ctx), m)
				}
			}()
		}

		if len(got) == 0 {
			sleepFor(ctx, idle)
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dice returns random numbers. It is safe for concurrent use.
type dice struct {
	mu     sync.Mutex
	source *rand.Rand
}

func newDice(seed int) *dice { return &dice{source: rand.New(rand.NewPCG(1, uint64(seed)))} }

func (d *dice) drawShare() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Float64()
}

type settings struct {
	lanes, instances int
	busyFor          func() time.Duration
	bell             ticket.Config
}

// runTown runs a town for an hour, and returns it with the largest number of tickets. Each second
// it checks three limits:
//   - For each lane, the queue has at most two tickets per instance.
//   - The queue has at most four tickets per instance with the text for all lanes
//     (ticket.AllLanes).
//   - Target-based scaling asks for at most one instance more than there are. It asks for one
//     instance per batchSize tickets.
func runTown(t *testing.T, s settings) (w *town, most int) {
	ctx, cancel := context.WithCancel(t.Context())
	w = &town{
		queue: &countedQueue{Queue: memory.New(time.Now).Queue("tickets"),
			count: map[string]int{}},
		instances: s.instances,
		lanes:     make([]townLane, s.lanes),
	}
	for i := range w.lanes {
		w.lanes[i].holder = -1
	}

	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	var all sync.WaitGroup
	for n := range s.instances {
		s.bell.Queue, s.bell.Epoch = w.queue, 1
		s.bell.Rand = newDice(n + 1).drawShare
		bell := ticket.New(s.bell)
		f := &stay.Answerer{
			Drainer: drainer{w, n},
			Permit:  drainer{w, n},
			Tickets: bell,
			Lanes:   s.lanes,
			Lease:   30 * time.Second,
			Now:     time.Now,
			Logger:  quiet,
		}

		all.Go(func() {
			sleepFor(ctx, time.Duration(n)*137*time.Millisecond)
			w.appendEachSecond(ctx, bell, s.busyFor)
		})

		all.Go(func() { w.runHost(ctx, f, 2*time.Second+time.Duration(n)*37*time.Millisecond) })
	}

	for range 3600 {
		time.Sleep(time.Second)
		text, ofOne, tickets := w.queue.countTickets()
		most = max(most, tickets)
		limit := 2 * s.instances
		if text == ticket.Encode(1, ticket.AllLanes) {
			limit *= 2 // an instance can have enqueued, requeued and received tickets for all lanes
		}

		if ofOne > limit {
			t.Fatalf("got %d tickets %q in the queue, want %d at most", ofOne, text, limit)
		}

		if wanted := (tickets + batchSize - 1) / batchSize; wanted > s.instances+1 {
			t.Fatalf("target-based scaling asks for %[2]d instances for %[1]d tickets, and there are %[3]d; "+
				"want one more at most",
				tickets, wanted, s.instances)
		}
	}

	cancel()
	all.Wait()
	time.Sleep(25 * time.Hour) // until all drains have ended

	return w, most
}

// With 64 lanes, there are more busy lanes than tickets that a host can answer at a time. In this
// test a process looks at a lane only because of a ticket: there is no sweep, for example. A lane
// is busy for the whole hour (ForGood), or repeatedly for up to 90 s (InTurns).
func TestAnswerer_TicketsAreBounded(t *testing.T) {
	t.Parallel()
	forGood := func() func() time.Duration { return func() time.Duration { return 24 * time.Hour } }
	inTurns := func() func() time.Duration {
		d := newDice(0)
		return func() time.Duration {
			return time.Duration(d.drawShare() * float64(90*time.Second))
		}
	}

	for _, lanes := range []int{1, 24, 64} {
		for _, instances := range []int{1, 4} {
			for name, busyFor := range map[string]func() func() time.Duration{"ForGood": forGood,
				"InTurns": inTurns} {
				t.Run(fmt.Sprintf("%d lanes, %d instances, busy %s", lanes, instances, name),
					func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							w, most := runTown(t,
								settings{lanes: lanes, instances: instances, busyFor: busyFor()})

							// The limit is about the sum of three times. For a minute, an instance
							// relies on its own last ticket, even if another instance has taken that
							// ticket. The next ticket is visible within 10 s. A host polls about every
							// 2 s.
							w.mu.Lock()
							defer w.mu.Unlock()

							if limit := 75 * time.Second; w.late > limit {
								t.Errorf("a lane with work was looked at after %s, want %s at most",
									w.late, limit)
							}

							t.Logf(
								"%d tickets at most, lanes with work were looked at after %s at most", most, w.late)
						})
					})
			}
		}
	}
}
