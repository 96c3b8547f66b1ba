package notify_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quietLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// traceParent is the trace of each message that appendMessage appends.
const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

const hook = "https://hooks.example.com/done"

// receivedEvent is a request that a receiver got.
type receivedEvent struct {
	at                     time.Time
	url, id, sign, seconds string
	trace                  string // traceparent and tracestate
	body                   []byte
	event                  struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
}

// receiver records the requests, and answers each request with the results of calling the field
// "answer".
type receiver struct {
	mu     sync.Mutex
	answer func(*http.Request) (status int, header http.Header, err error)
	log    []receivedEvent
	most   int // largest number of requests in flight at the same time
	now    int // number of requests in flight
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}

	got := receivedEvent{at: time.Now(), url: req.URL.String(), id: req.Header.Get("webhook-id"),
		sign:    req.Header.Get("webhook-signature"),
		seconds: req.Header.Get("webhook-timestamp"), trace: req.Header.Get("traceparent") + " " +
			req.Header.Get("tracestate"), body: body}
	if err := json.Unmarshal(body, &got.event); err != nil {
		return nil, err
	}

	r.mu.Lock()
	r.log = append(r.log, got)
	answer := r.answer
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	status, header, err := answer(req)
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	if err == nil {
		err = req.Context().Err()
	}

	if err != nil {
		return nil, err
	}

	return &http.Response{StatusCode: status, Header: header,
		Body: io.NopCloser(strings.NewReader("thanks")), Request: req}, nil
}

func (r *receiver) setAnswer(answer func(*http.Request) (int, http.Header, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) listEvents() []receivedEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]receivedEvent(nil), r.log...)
}

func (r *receiver) maxAtOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

func answerStatus(status int) func(*http.Request) (int, http.Header, error) {
	return func(*http.Request) (int, http.Header, error) { return status, nil, nil }
}

var errRefused = errors.New("connection refused")

func refuseConnection(*http.Request) (int, http.Header, error) { return 0, nil, errRefused }

// world is a storage account with one lane, receivers, and a holder that makes messages final.
type world struct {
	t        *testing.T
	account  *memory.Account
	store    *lane.Store
	writer   *lane.Writer
	append   *lane.Appender
	receiver *receiver
	seen     *outcomes
}

// outcomes is an observer that counts calls by their event and outcome.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) Notified(event, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n[event+" "+outcome]++
}

func (o *outcomes) countOf(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n[what]
}

func simulate(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l := lanetest.New(t, 1)
	return &world{t: t, account: l.Account, store: l.Store, append: l.Appender,
		receiver: &receiver{answer: answerStatus(204)}, seen: &outcomes{n: map[string]int{}}}
}

// sender is the Sender of one process, with faults of the storage that this process uses.
type sender struct {
	*notify.Sender
	faults *storagetest.Faults
}

func secretOf(t *testing.T, text string) notify.Secret {
	t.Helper()
	s, err := notify.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startSender starts the Sender of a new process. From then on commitFinal wakes this Sender, not
// an earlier one.
func (w *world) startSender(change ...func(*notify.Config)) *sender {
	w.t.Helper()
	p := &sender{faults: storagetest.NewFaults()}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	cfg := notify.Config{
		Store: &store, Leases: p.faults.Leases(w.account.Leases()), Now: time.Now, Log: quietLog,
		Transport: w.receiver, Observer: w.seen,
		Rand: func() float64 { return 0 },
		Callbacks: notify.Callbacks{AllowedHosts: []string{"hooks.example.com",
			"*.slow.example.com"}, Secret: secretOf(w.t, knownSecret)},
	}

	for _, f := range change {
		f(&cfg)
	}

	p.Sender = notify.New(cfg)
	w.store.Notifier = p.Sender
	w.t.Cleanup(func() {
		if err := p.Close(w.t.Context()); err != nil && w.t.Context().Err() == nil {
			w.t.Errorf("Close = %v, want no error", err)
		}
		synctest.Wait()
	})

	return p
}

func (w *world) appendMessage(callback string) weir.ID {
	w.t.Helper()
	r, err := w.append.Append(w.t.Context(), weir.Message{Contract: "article", Key: "/a",
		ContentType: "application/xml", Body: []byte("<a>secret body</a>"), Callback: callback,
		TraceParent: traceParent, TraceState: "vendor=1"}, "")
	if err != nil {
		w.t.Fatal(err)
	}

	return r.Message.ID
}

// commitFinal makes messages final, as a holder does.
func (w *world) commitFinal(stage weir.Stage, ids ...weir.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	if w.writer == nil {
		var err error
		if w.writer, err = w.store.RaiseFence(ctx, 0, "holder", lane.Tail{}, func(*lane.Tail) {}); err != nil {
			w.t.Fatal(err)
		}
	}

	batch := &lane.Transaction{}
	for _, id := range ids {
		e, err := w.store.ReadMessage(ctx, 0, id.Seq)
		if err != nil {
			w.t.Fatal(err)
		}

		ch, at := &lane.Change{}, time.Now().UTC().Truncate(time.Microsecond)
		result := weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: at}
		if stage == weir.Dead {
			result = weir.Result{Outcome: weir.OutcomeRejected, Status: 400,
				Reason: "400 no such path", StartedAt: at}
			ch.NotifyFinal(e, stage, at, w.store.Notifier.DeadReceivers(e.Message.Contract))
		}

		e.Record(result, 1, true)
		if err := ch.Finish(e, stage, at); err != nil {
			w.t.Fatal(err)
		}

		ch.UpdateTail(func(t *lane.Tail) { t.Cursor = max(t.Cursor, id.Seq+1) })

		if !batch.TryAdd(ch) {
			w.commitBatch(batch)
			batch = &lane.Transaction{}
			batch.TryAdd(ch)
		}
	}

	w.commitBatch(batch)
}

func (w *world) commitBatch(b *lane.Transaction) {
	w.t.Helper()
	if err := w.writer.Commit(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}

	for _, ch := range b.Changes() {
		if ch.HasEvents() {
			w.store.Notifier.WakeOutbox(0)
		}
	}
}

// countRows returns the number of rows in the outbox, and reports whether the outbox has its
// marker.
func (w *world) countRows() (n int, hasMarker bool) {
	w.t.Helper()
	page, err := w.account.Table().Range(w.t.Context(),
		storage.Query{Partition: "1.0", From: "n_", To: "n_~"})
	if err != nil {
		w.t.Fatal(err)
	}

	_, err = w.account.Table().Get(w.t.Context(), "1.0", "!mail")

	return len(page.Rows), err == nil
}

func (w *world) checkOutboxEmpty() {
	w.t.Helper()
	if n, hasMarker := w.countRows(); n != 0 || hasMarker {
		w.t.Errorf("the outbox has %d rows and a marker: %v, want 0 and false", n, hasMarker)
	}
}

// passTime lets virtual time pass, and then waits until all goroutines are blocked.
func passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func formatDelay(e receivedEvent, from time.Time) string {
	return fmt.Sprint(e.at.Sub(from).Round(time.Second))
}
