package schema_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/filing"
	"weir/internal/fold"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/lane/outbox"
	"weir/internal/notify"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/storage/memory"
	"weir/internal/testkit/lanetest"
	"weir/internal/ticket"
	"weir/internal/wake"
	"weir/internal/weir"
)

const (
	leaseLength  = 15 * time.Second
	settleTime   = 2 * time.Second
	hookURL      = "https://hooks.test/done"
	operatorURL  = "https://operators.test/events"
	behindBy     = time.Minute
	pausedFor    = time.Minute
	attemptLimit = 3
)

// operators is a receiver of events that gets every kind of event.
var operators = notify.Receiver{
	URL: operatorURL, Secret: secret, PausedFor: pausedFor, BehindBy: behindBy,
	Events: []string{
		notify.MessageDead, notify.LanePaused, notify.LaneResumed,
		notify.LaneBehind, notify.LaneCaughtUp, notify.ContractRejected, notify.ReplayFinished,
	},
}

var quietLog = slog.New(slog.DiscardHandler)

// drawHalf is used in place of random numbers, so that each run takes the same virtual time.
func drawHalf() float64 { return 0.5 }

// world has one storage account, a CMS whose answers the test sets, and the current process.
type world struct {
	*testing.T
	account  *memory.Account
	recorder *recorder
	queue    *memory.Queue
	*process // the process that was started last; nil after stop

	mu sync.Mutex
	// answers for the CMS; nil = the CMS accepts each message
	answer func(context.Context, weir.Delivery) weir.Result
	// true = receivers of events answer 500
	refuses atomic.Bool

	brake    int           // see drain.Config; for processes that are started later
	slowList time.Duration // time that a listing of blobs takes
	// folding of keys in the settings of processes that are started later
	fold       fold.Rules
	contracts  *lane.Contracts // contracts of processes that are started later; nil = all
	lockedBlob string          // name of a blob that storage refuses to remove; empty = none
}

// process is one process of the program, wired as in the handler.
type process struct {
	w         *world
	dead      atomic.Bool
	store     *lane.Store
	appender  *lane.Appender
	drainer   *drain.Drainer
	tickets   *ticket.Sender
	sender    *notify.Sender
	schedules *recur.Runner
	replays   *replay.Runner
	batches   *batch.Runner
	keeper    *history.Keeper
}

func newWorld(t *testing.T, r *recorder) *world {
	account := memory.New(time.Now)
	w := &world{T: t, account: account, queue: account.Queue("tickets"), recorder: r}
	t.Cleanup(func() {
		if w.process != nil {
			w.kill() // the run failed before its end
		}
	})

	return w
}

// newStore returns a store of a process. The store has no epoch until Store.Open sets one.
func (p *process) newStore(lanes int) *lane.Store {
	return &lane.Store{
		Table: recordedTable{p.w.account.Table(), p}, Bodies: recordedBlobs{p.w.account.Blobs(), p},
		Lanes: lanes, Fold: p.w.fold, Now: time.Now, SettleTime: settleTime, Rand: drawHalf,
		Contracts: p.w.contracts,
	}
}

// start starts a process and makes it the current process.
func (w *world) start(lanes int) {
	w.Helper()
	p := &process{w: w}
	w.process = p
	p.store = p.newStore(lanes)
	w.must(p.store.Open(w.Context()))
	p.tickets = ticket.New(ticket.Config{
		Queue: recordedQueue{w.queue, p}, Epoch: p.store.Epoch, Now: time.Now, Rand: drawHalf,
		Log: quietLog,
	})

	p.startSender()
	counts := history.NewRecorder(time.Now,
		func() map[string]int64 { return map[string]int64{"transact": 1} })
	p.drainer = p.newDrainer(p.store, counts)
	p.appender = lane.NewAppender(p.store, quietLog)
	p.appender.OnFiled, p.appender.OnWake = p.drainer.OfferAppended, p.drainer.WakeOffered
	p.schedules = recur.New(recur.Config{
		Store: &recur.Store{Table: p.store.Table, Bodies: p.store.Bodies, Now: time.Now},
		Log:   scheduleLog{p.appender, p.store.Messages()}, Contracts: accepter{},
		Waker: wake.Waker{Drainer: p.drainer, Tickets: p.tickets}.Filed(),
		Now:   time.Now, Rand: drawHalf, Logger: quietLog,
	})

	p.replays = replay.New(replay.Config{
		Store: p.store, Log: replay.LogOf(p.store), Leases: recordedLeases{w.account.Leases(), p},
		Lease: leaseLength, Wake: p.drainer.Wake, Now: time.Now, Logger: quietLog,
		Finished: func(j replay.Job) error {
			return p.sender.ReplayFinished(context.Background(), j.ID, time.Now(), j)
		},
	})

	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Split: "/feed/article"}},
		contract.Limits{MaxBody: 1 << 20})
	w.must(err)
	p.batches = batch.New(batch.Config{
		Store: p.store, Blobs: recordedBlobs{w.account.Blobs(), p},
		Leases: recordedLeases{w.account.Leases(), p},
		Lease:  leaseLength, Contracts: set, MaxBody: 1 << 20, Filer: &filing.Filer{Contracts: set},
		Log: p.appender, Wake: p.drainer.Wake, Refused: func(error) {}, Now: time.Now,
		Logger: quietLog,
	})

	p.keeper = history.NewKeeper(history.Config{Table: p.store.Table, Recorder: counts,
		Now: time.Now, Log: quietLog})
}

func (p *process) startSender() {
	store := *p.store
	p.sender = notify.New(notify.Config{
		Store: &store, Leases: recordedLeases{p.w.account.Leases(), p}, Transport: receivers{p.w},
		Now: time.Now, Rand: drawHalf, Log: quietLog,
		Callbacks: notify.Callbacks{AllowedHosts: []string{"hooks.test"}, Secret: secret},
		Receivers: []notify.Receiver{operators},
	})

	p.store.Notifier = p.sender
}

func (p *process) newDrainer(store *lane.Store, observer drain.Observer) *drain.Drainer {
	return drain.New(drain.Config{
		Store: store, Leases: recordedLeases{p.w.account.Leases(), p}, Sender: cms{p},
		Tickets: p.tickets,
		Lease:   leaseLength, Settle: settleTime, Attempts: attemptLimit,
		Backoff: drain.Backoff{Min: time.Second, Max: 10 * time.Second},
		Brake:   p.w.brake,
		Now:     time.Now, Rand: drawHalf, Log: quietLog, Observer: observer, Name: "process",
		Remembers: func(string) bool { return true },
	})
}

// stop closes all parts of the process, as at SIGTERM.
func (w *world) stop() {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	w.must(w.schedules.Close(ctx))
	w.must(w.replays.Close(ctx))
	w.must(w.batches.Close(ctx))
	w.must(w.drainer.Close(ctx))
	w.must(w.sender.Close(ctx))
	w.must(w.keeper.Close(ctx))
	w.tickets.Wait(ctx)
	w.process = nil
}

// kill ends the process as SIGKILL does: the process writes nothing more to storage.
func (w *world) kill() {
	w.dead.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	_ = w.schedules.Close(ctx)
	_ = w.replays.Close(ctx)
	_ = w.batches.Close(ctx)
	_ = w.drainer.Close(ctx)
	_ = w.sender.Close(ctx)
	_ = w.keeper.Close(ctx)
	w.tickets.Wait(ctx)
}

// sweep does for each lane what the timer's sweep does.
func (w *world) sweep() {
	w.Helper()
	for number := range w.store.Lanes {
		c, err := w.store.ReadControl(w.Context(), number)
		w.must(err)
		oldest, err := lists.Reader{Store: w.store}.OldestWaitingSince(w.Context(), number, c)
		w.must(err)
		w.sender.ObserveLane(number, c)
		w.sender.ReportLane(w.Context(), number, c, oldest)
		if number == 0 {
			w.replays.ResumeOrphans(c)
		}

		w.drainer.Wake(number)
	}
}

// waitUntil waits until the function "holds" returns true, and sweeps each minute. It fails the
// test after two hours.
func (w *world) waitUntil(condition string, holds func() bool) {
	w.Helper()
	began, swept := time.Now(), time.Now()
	for !holds() {
		time.Sleep(100 * time.Millisecond)
		if time.Since(swept) >= time.Minute {
			w.sweep()
			swept = time.Now()
		}

		if time.Since(began) > 2*time.Hour {
			w.Fatalf("after two hours: want %s", condition)
		}
	}
}

// post appends a message, and returns its id.
func (w *world) post(m weir.Message) weir.ID {
	w.Helper()
	m.Contract, m.ContentType = "article", "application/xml"
	if m.Body == nil {
		m.Body = []byte("<article/>")
	}

	r, err := lanetest.AppendAndWake(w.Context(), w.appender, m, rand.Text())
	w.must(err)

	return r.Message.ID
}

func (w *world) awaitStage(id weir.ID, stage weir.Stage) {
	w.Helper()
	var st weir.Status
	w.waitUntil(fmt.Sprintf("stage %s of message %d", stage, id.Seq), func() (ok bool) {
		var err error
		st, err = w.store.Messages().Status(w.Context(), id)
		w.must(err)
		return st.Stage == stage
	})
}

// awaitTail waits until the function "holds" returns true for the tail of a lane.
func (w *world) awaitTail(number int, condition string, holds func(lane.Tail) bool) {
	w.Helper()
	w.waitUntil(condition, func() bool {
		c, err := w.store.ReadControl(w.Context(), number)
		w.must(err)
		return holds(c.Tail)
	})
}

// awaitRest waits until all lanes are idle: no message waits, no request or event is left, and no
// holder is at work.
func (w *world) awaitRest() {
	w.Helper()
	w.waitUntil("all lanes at rest", func() bool {
		for number := range w.store.Lanes {
			c, err := w.store.ReadControl(w.Context(), number)
			w.must(err)
			if c.WaitingCount() != 0 || c.HasRequests() || outbox.MarkerOf(c) != "" ||
				c.Tail.IsOpen {
				return false
			}
		}

		return true
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("got the error %v, want none", err)
	}
}

func (w *world) setAnswer(answer func(context.Context, weir.Delivery) weir.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// cms is the connection of one process to the CMS.
type cms struct{ p *process }

func (c cms) Send(ctx context.Context, d weir.Delivery) weir.Result {
	c.p.w.mu.Lock()
	answer := c.p.w.answer
	c.p.w.mu.Unlock()
	r := weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, Body: "<ok/>"}
	started := time.Now()
	if answer != nil {
		r = answer(ctx, d)
	}

	r.StartedAt, r.Duration = started, time.Millisecond+time.Since(started)

	return r
}

// answerAlways returns a function that gives the same answer to each message.
func answerAlways(r weir.Result) func(context.Context, weir.Delivery) weir.Result {
	return func(context.Context, weir.Delivery) weir.Result { return r }
}

// answerNever acts as a CMS that does not answer: it returns when the request is cut off.
func answerNever(ctx context.Context, _ weir.Delivery) weir.Result {
	<-ctx.Done()
	return weir.Result{Outcome: weir.OutcomeNone, Unanswered: true}
}

var (
	rejected = weir.Result{Outcome: weir.OutcomeRejected, Status: 422, Reason: "bad content",
		Body: "<no/>"}
	failed      = weir.Result{Outcome: weir.OutcomeRetry, Status: 500, Reason: "try again"}
	unanswered  = weir.Result{Outcome: weir.OutcomeRetry, Reason: "no answer", Unanswered: true}
	unavailable = weir.Result{Outcome: weir.OutcomeUnavailable, Status: 503, Reason: "away"}
	refused     = weir.Result{Outcome: weir.OutcomeUnavailable, Status: 403, Reason: "refused",
		Refused: true}
)

// receivers answers in place of all receivers of events: 500 if world.refuses is set, else 200.
type receivers struct{ w *world }

func (r receivers) RoundTrip(request *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, request.Body)
	status := http.StatusOK
	if r.w.refuses.Load() {
		status = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody,
		Request: request}, nil
}

var secret = func() notify.Secret {
	s, err := notify.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err) // the text is a constant
	}
	return s
}()

// scheduleLog implements recur.Log.
type scheduleLog struct {
	*lane.Appender
	lane.Messages
}

// accepter stands in for the contracts of scheduled messages.
type accepter struct{}

func (accepter) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	return weir.Message{Contract: "article", Key: "scheduled", ContentType: contentType,
		Body: body}, nil
}

// newLargeBody returns a body that does not fit into a row.
func newLargeBody() []byte {
	b := make([]byte, 100<<10)
	_, _ = rand.Read(b)
	return b
}

// keyIn returns an ordering key that belongs to a lane.
func (w *world) keyIn(number int, name string) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("%s-%d", name, n); lane.Of(key, w.store.Lanes) == number {
			return key
		}
	}
}
