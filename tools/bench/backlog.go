package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"strings"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// drainCost is the cost of delivering a backlog. A backlog consists of the messages that wait in a
// lane when the handler starts.
type drainCost struct {
	messages int
	filling  float64 // time in s
	// time in s, from the start of the first request at the CMS to the end of the last one
	draining float64
	// the handler's requests to storage, except those that create table, queues and containers
	transactions float64
	allocated    float64 // bytes that the handler has allocated since its start
	peak         float64 // the handler's largest resident set, in MiB
}

func (d drainCost) perMessage(v float64) float64 { return v / float64(d.messages) }

// runBacklog compares a long backlog with a short one: the cost of a message must not grow with the
// backlog. It also measures a handler without a backlog, and subtracts the allocations of that
// handler.
func runBacklog(ctx context.Context, b *bench) ([]result, error) {
	none, err := measureBacklog(ctx, b, 0)
	if err != nil {
		return nil, err
	}

	short, err := measureBacklog(ctx, b, b.sizes.backlog.short)
	if err != nil {
		return nil, err
	}

	long, err := measureBacklog(ctx, b, b.sizes.backlog.long)
	if err != nil {
		return nil, err
	}

	allocated := func(d drainCost) float64 {
		return d.perMessage(d.allocated-none.allocated) / 1024
	}
	took := fmt.Sprintf("%d messages: filled in %.1f s, drained in %.1f s; %d: %.1f and %.1f s (Azurite looks "+
		"through the whole partition at each insert, so that the time to fill grows with the square of the size: "+
		"100,000 take 10 minutes, see docs/performance.md)",
		long.messages, long.filling, long.draining, short.messages, short.filling, short.draining)

	rows := []result{
		newRow("backlog, transactions per message", "", long.perMessage(long.transactions)).
			withBaseline(short.perMessage(short.transactions)).limitRatio(1.2).withNote("%s", took),
		newRow("backlog, memory allocated per message", "KiB",
			allocated(long)).withBaseline(allocated(short)).limitRatio(1.2).
			withNote("by the handler while it drains, less what it allocates to start"),
		newRow("backlog, peak resident set", "MiB",
			long.peak).withBaseline(short.peak).limitValue(150).withNote("%.1f MiB with no backlog",
			none.peak),
	}

	if b.delay > 0 {
		return rows, nil // the delay of storage does not affect memoryTimes
	}

	timed, err := memoryTimes(ctx, b.sizes.backlog.short, b.sizes.backlog.inMemory)

	return append(rows, timed), err
}

// measureBacklog fills a lane with n messages. Then it starts a handler, which delivers them to a
// CMS that answers without delay.
func measureBacklog(ctx context.Context, b *bench, n int) (drainCost, error) {
	d := drainCost{messages: n}
	r, err := b.newRig(ctx, rigOptions{beforeHost: func(ctx context.Context, r *rig) error {
		began := time.Now()
		err := fillInOrder(ctx, r, makeMessages("backlog", n, b.sizes.load.keys))
		d.filling = time.Since(began).Seconds()
		return err
	}})
	if err != nil {
		return d, err
	}
	defer r.shutDown()

	if err := r.awaitCondition(ctx, backlogLimit, "the backlog is drained",
		func() bool { return r.cms.Stats().Writes >= n }); err != nil {
		return d, err
	}

	if err := r.awaitRest(ctx); err != nil {
		return d, err
	}

	if err := r.checkRecord(n); err != nil {
		return d, err
	}

	if requests := r.cms.Requests(); n > 0 {
		d.draining = requests[n-1].EndedAt.Sub(requests[0].StartedAt).Seconds()
	}

	return d, readDrainCost(ctx, r, &d)
}

const backlogLimit = 15 * time.Minute

// readDrainCost reads the handler's counters into d. All lanes must be idle.
func readDrainCost(ctx context.Context, r *rig, d *drainCost) error {
	used, err := r.readTransactions(ctx)
	if err != nil {
		return err
	}

	maps.DeleteFunc(used, func(name string, _ float64) bool {
		return strings.HasPrefix(name, "host ") || strings.HasSuffix(name, " create")
	})
	d.transactions = sumCounts(used)
	i := r.host.Status().Instances[0]
	m, err := readMetrics(ctx, r.client, handlerURL(i)+"/api/metrics")
	if err != nil {
		return err
	}

	d.allocated = m["go_memstats_alloc_bytes_total"]
	d.peak, err = peakMemory(i.PID)

	return err
}

// peakMemory returns the largest resident set of a process so far, in MiB.
func peakMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}

	return 0, fmt.Errorf("process %d: no VmHWM", pid)
}

// memoryTimes compares the time per message of a long backlog with that of short ones, on memory
// storage in this process. The rows of the long backlog stay in memory during all measurements.
// Otherwise Go's garbage collector would have more work in the measurement of the long backlog than
// in the others.
func memoryTimes(ctx context.Context, short, long int) (result, error) {
	full, err := newMemoryLane(ctx, long)
	if err != nil {
		return result{}, err
	}

	half := max(min(long/short, 50)/2, 1)
	shorts, err := drainShort(ctx, half, short)
	if err != nil {
		return result{}, err
	}

	spent, err := full.drainLane(ctx)
	if err != nil {
		return result{}, err
	}

	more, err := drainShort(ctx, half, short)
	runtime.KeepAlive(full)
	shorts = append(shorts, more...)

	return newRow("backlog, time per message on memory storage", "µs",
		spent).withBaseline(mean(shorts)).limitRatio(1.2).
		withNote("%d messages, drained to a CMS that answers at once; the yardstick is the mean of %d backlogs of %d",
			long, len(shorts), short), err
}

// drainShort drains "times" backlogs of n messages, one after the other. It returns each backlog's
// µs per message.
func drainShort(ctx context.Context, times, n int) ([]float64, error) {
	var spent []float64
	for range times {
		f, err := newMemoryLane(ctx, n)
		if err != nil {
			return nil, err
		}

		v, err := f.drainLane(ctx)
		if err != nil {
			return nil, err
		}

		spent = append(spent, v)
	}

	return spent, nil
}

// memoryLane is a lane on memory storage that this process fills and drains.
type memoryLane struct {
	n       int // number of messages to deliver
	account *memory.Account
	store   *lane.Store
}

func newMemoryLane(ctx context.Context, n int) (*memoryLane, error) {
	account := memory.New(time.Now)
	f := &memoryLane{n, account,
		&lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}}
	if err := f.store.Open(ctx); err != nil {
		return nil, err
	}
	return f, fillStore(ctx, f.store, makeMessages("backlog", n, fullSizes.load.keys))
}

// drainLane delivers all messages of the lane and returns the µs per message.
func (f *memoryLane) drainLane(ctx context.Context) (float64, error) {
	last := &lastSender{left: f.n, done: make(chan struct{})}
	d := drain.New(drain.Config{Store: f.store, Leases: f.account.Leases(), Sender: last,
		Tickets: noTickets{}, Lease: 30 * time.Second, Settle: 3 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})

	began := time.Now()
	d.Wake(0)
	var err error
	select {
	case <-last.done:
	case <-ctx.Done():
		err = ctx.Err()
	}

	spent := time.Since(began)

	return float64(spent.Microseconds()) / float64(f.n), closeDrainer(d, err)
}

func closeDrainer(d *drain.Drainer, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if e := d.Close(ctx); e != nil && err == nil {
		err = e
	}
	return err
}

// lastSender takes the place of a CMS that accepts each message without delay. It closes done after
// the last message. It needs no lock, because a lane sends one message at a time.
type lastSender struct {
	left int // number of messages not sent yet
	done chan struct{}
}

func (s *lastSender) Send(context.Context, weir.Delivery) weir.Result {
	if s.left--; s.left == 0 {
		close(s.done)
	}
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}
}

// noTickets enqueues nothing, because one process drains all lanes.
type noTickets struct{}

func (noTickets) EnqueueNow(context.Context, int) error { return nil }
