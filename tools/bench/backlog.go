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

// drained is what emptying a full lane took.
type drained struct {
	messages     int
	filling      float64 // s
	draining     float64 // s, from the first request at the CMS to rest
	transactions float64
	allocated    float64 // bytes, by the handler since its start
	peak         float64 // MiB, the handler's largest resident set
}

func (d drained) perMessage(v float64) float64 { return v / float64(d.messages) }

// backlog compares a long backlog with a short one: what a message costs must not grow.
func backlog(ctx context.Context, b *bench) ([]result, error) {
	none, err := b.drainFull(ctx, 0)
	if err != nil {
		return nil, err
	}
	short, err := b.drainFull(ctx, b.sizes.short)
	if err != nil {
		return nil, err
	}
	long, err := b.drainFull(ctx, b.sizes.long)
	if err != nil {
		return nil, err
	}
	allocated := func(d drained) float64 { return d.perMessage(d.allocated-none.allocated) / 1024 }
	took := fmt.Sprintf("%d messages: filled in %.1f s, drained in %.1f s; %d: %.1f and %.1f s (Azurite looks through the whole partition at each insert and each read, so that filling takes the square of the size: 100,000 take 10 minutes, see docs/performance.md)",
		long.messages, long.filling, long.draining, short.messages, short.filling, short.draining)
	rows := []result{
		measured("backlog, transactions per message", "", long.perMessage(long.transactions)).
			against(short.perMessage(short.transactions)).ratioAtMost(1.2).noted("%s", took),
		measured("backlog, memory allocated per message", "KiB", allocated(long)).against(allocated(short)).ratioAtMost(1.2).
			noted("by the handler while it drains, less what it allocates to start"),
		measured("backlog, peak resident set", "MiB", long.peak).against(short.peak).atMost(150).noted("%.1f MiB with no backlog", none.peak),
	}
	if b.delay > 0 {
		return rows, nil // storage in memory is nowhere else
	}
	timed, err := memoryTimes(ctx, b.sizes.short, b.sizes.longMemory)
	return append(rows, timed), err
}

// drainFull fills a lane before the handler starts, and lets it drain to a CMS that takes no time.
func (b *bench) drainFull(ctx context.Context, n int) (drained, error) {
	d := drained{messages: n}
	r, err := b.newRig(ctx, setup{filled: func(ctx context.Context, r *rig) error {
		began := time.Now()
		err := r.fill(ctx, messages("backlog", n, b.sizes.keys))
		d.filling = time.Since(began).Seconds()
		return err
	}})
	if err != nil {
		return d, err
	}
	defer r.close()
	if err := r.until(ctx, backlogLimit, "the backlog is drained", func() bool { return r.cms.Stats().Writes >= n }); err != nil {
		return d, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return d, err
	}
	if err := r.clean(n); err != nil {
		return d, err
	}
	if requests := r.cms.Requests(); n > 0 {
		d.draining = requests[n-1].EndedAt.Sub(requests[0].StartedAt).Seconds()
	}
	return d, r.measure(ctx, &d)
}

const backlogLimit = 15 * time.Minute

// measure reads the counters of a rig that has drained. What is sent once at the start, and
// by the host, does not belong to the messages.
func (r *rig) measure(ctx context.Context, d *drained) error {
	used, err := r.transactions(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(used, func(name string, _ float64) bool {
		return strings.HasPrefix(name, "host ") || strings.HasSuffix(name, " create")
	})
	d.transactions = total(used)
	i := r.host.Status().Instances[0]
	m, err := scrape(ctx, r.client, at(i)+"/api/metrics")
	if err != nil {
		return err
	}
	d.allocated = m["go_memstats_alloc_bytes_total"]
	d.peak, err = peakMemory(i.PID)
	return err
}

// peakMemory gives the largest resident set a process has had, in MiB.
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

// memoryTimes compares the time per message on memory storage, in this process. The long
// backlog is there while the short ones drain: rows in memory are work for the collector
// whichever lane they stand in, and that work is not the engine's.
func memoryTimes(ctx context.Context, short, long int) (result, error) {
	full, err := newFull(ctx, long)
	if err != nil {
		return result{}, err
	}
	half := max(min(long/short, 50)/2, 1)
	shorts, err := drainShort(ctx, half, short)
	if err != nil {
		return result{}, err
	}
	spent, err := full.drain(ctx)
	if err != nil {
		return result{}, err
	}
	more, err := drainShort(ctx, half, short)
	runtime.KeepAlive(full)
	shorts = append(shorts, more...)
	return measured("backlog, time per message on memory storage", "µs", spent).against(mean(shorts)).ratioAtMost(1.2).
		noted("%d messages, drain alone, the CMS answering at once; the yardstick is the mean of %d backlogs of %d", long, len(shorts), short), err
}

// drainShort drains so many short backlogs.
func drainShort(ctx context.Context, times, n int) ([]float64, error) {
	var spent []float64
	for range times {
		f, err := newFull(ctx, n)
		if err != nil {
			return nil, err
		}
		v, err := f.drain(ctx)
		if err != nil {
			return nil, err
		}
		spent = append(spent, v)
	}
	return spent, nil
}

// full is a full lane on memory storage.
type full struct {
	n       int
	account *memory.Account
	store   *lane.Store
}

func newFull(ctx context.Context, n int) (*full, error) {
	account := memory.New(time.Now)
	f := &full{n, account, &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}}
	if err := f.store.Open(ctx); err != nil {
		return nil, err
	}
	return f, fillStore(ctx, f.store, messages("backlog", n, fullSizes.keys))
}

// drain gives the µs per message.
func (f *full) drain(ctx context.Context) (float64, error) {
	last := &lastSender{left: f.n, done: make(chan struct{})}
	d := drain.New(drain.Config{Store: f.store, Leases: f.account.Leases(), Sender: last, Tickets: silent{}, Lease: 30 * time.Second, Settle: 3 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	began := time.Now()
	d.Wake(0)
	var err error
	select {
	case <-last.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	spent := time.Since(began)
	return float64(spent.Microseconds()) / float64(f.n), closing(d, err)
}

func closing(d *drain.Drainer, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if e := d.Close(ctx); e != nil && err == nil {
		err = e
	}
	return err
}

// lastSender takes everything at once, and tells when it has had the last. One lane sends
// one at a time.
type lastSender struct {
	left int
	done chan struct{}
}

func (s *lastSender) Send(context.Context, weir.Delivery) weir.Result {
	if s.left--; s.left == 0 {
		close(s.done)
	}
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}
}

// silent is a bell nobody hears.
type silent struct{}

func (silent) EnqueueNow(context.Context, int) error { return nil }
