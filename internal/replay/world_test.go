package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one storage account with dead messages. It also acts as the holders: it grants the
// requests for replays, and gives each replayed message its next final stage at once.
type world struct {
	t       *testing.T
	account *memory.Account
	store   *lane.Store // the test's own store, without faults

	mu            sync.Mutex
	requested     []replayRequest
	pending       []replayRequest         // requests that are not granted yet
	grantDelay    time.Duration           // age at which a request is granted; 0 = never
	outcomeOf     func(string) weir.Stage // final stage after a replay, by the message's key
	hasLater      map[string]bool         // keys whose replays are refused unless forced
	finished      []replay.Job
	failedReports int // number of calls of Finished that will fail
}

// replayRequest is a recorded request for the replay of a dead message.
type replayRequest struct {
	lane  int
	seq   int64
	key   string
	at    time.Time
	force bool
}

func simulate(t *testing.T, lanes int, f func(*testing.T, *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		f(t, &world{t: t, account: l.Account, store: l.Store, grantDelay: time.Second,
			hasLater:  map[string]bool{},
			outcomeOf: func(string) weir.Stage { return weir.Delivered }})
	})
}

func partitionOf(lane int) string          { return fmt.Sprintf("1.%d", lane) }
func rowKey(kind string, seq int64) string { return kind + lane.OrderPos(seq) }

// addDead adds n dead messages for each key. It goes through all keys n times.
func (w *world) addDead(n int, keys ...string) {
	w.t.Helper()
	for range n {
		for _, key := range keys {
			w.addDeadMessage(key, "article", 422, "bad content", time.Now())
		}
	}
}

func (w *world) addDeadMessage(key, contract string, status int64, reason string, at time.Time) {
	w.t.Helper()
	number := lane.Of(key, w.store.Lanes)
	seq := w.lastSeq(number) + 1
	_, err := w.account.Table().Transact(w.t.Context(), partitionOf(number), []storage.Op{
		{Kind: storage.Insert, Key: rowKey("m_", seq),
			Values: map[string]any{"Nonce": "0102030405060708090a", "Key": key,
				"Contract": contract, "Stage": "dead", "FinishedAt": at.UTC(),
				"Attempts": `[{"number":1,"duration":3000000000,"outcome":"rejected"}]`}},
		{Kind: storage.Insert, Key: rowKey("x_", seq),
			Values: map[string]any{"Key": key, "Contract": contract, "DiedAt": at.UTC(),
				"Reason": reason, "CMSStatus": status}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) lastSeq(number int) int64 {
	page, err := w.account.Table().Range(w.t.Context(),
		storage.Query{Partition: partitionOf(number), From: "m_", To: "m_~"})
	if err != nil {
		w.t.Fatal(err)
	}
	return int64(len(page.Rows))
}

// process is a process of Weir with a runner.
type process struct {
	*replay.Runner
	*world
	sees   *lane.Store // the store of the process, with faults
	faults *storagetest.Faults
	stalls chan time.Duration // each value delays one request for a replay
	woken  []int              // lanes that the runner has woken
}

func (w *world) startProcess() *process {
	p := &process{world: w, faults: storagetest.NewFaults(), stalls: make(chan time.Duration, 1)}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	p.sees = &store
	p.Runner = replay.New(replay.Config{
		Store: &store, Log: (*log)(p), Leases: p.faults.Leases(w.account.Leases()),
		Lease: 15 * time.Second,
		Wake: func(number int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			p.woken = append(p.woken, number)
		},
		Finished: func(j replay.Job) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.failedReports--; w.failedReports >= 0 {
				return errors.New("not now")
			}

			w.finished = append(w.finished, j)
			return nil
		},
		Now: time.Now, Logger: lanetest.Quiet,
	})

	w.t.Cleanup(func() { p.stop() })

	return p
}

func (p *process) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		p.t.Errorf("Close = %v, want no error", err)
	}
}

// kill ends a process as SIGKILL would: no further call of the process reaches storage.
func (p *process) kill() {
	p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
}

// sweepForJobs resumes the jobs that no process runs, as each sweep does.
func (p *process) sweepForJobs() {
	c, err := p.sees.ReadControl(p.t.Context(), 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ResumeOrphans(c)
}

// log implements replay.Log for a process. Before each read it grants the pending requests that are
// old enough.
type log process

func (l *log) ReadDead(ctx context.Context, lane int, behind int64, limit int) ([]lists.DeadRow,
	bool, error) {
	l.grantRequests()
	// The limit is small, so that several pages are necessary.
	return lists.Reader{Store: l.sees}.ReadDead(ctx, lane, behind, min(limit, 7))
}

func (l *log) ReadStates(ctx context.Context, lane int,
	seqs []int64) ([]lists.MessageState, error) {
	l.grantRequests()
	return lists.Reader{Store: l.sees}.ReadStates(ctx, lane, seqs)
}

func (l *log) ReadMessage(ctx context.Context, lane int, seq int64) (*lane.Entry, error) {
	l.grantRequests()
	return l.sees.ReadMessage(ctx, lane, seq)
}

func (l *log) ReplayObstacle(_ context.Context, e *lane.Entry) (string, error) {
	if l.hasLater[e.Message.Key] {
		return "a later one was delivered", nil
	}
	return "", nil
}

func (l *log) ReplayMany(ctx context.Context, _ int, entries []*lane.Entry,
	force bool) (results []error, err error) {
	for _, e := range entries {
		err := l.requestReplay(ctx, e.Message.ID, force)
		if kind := weir.KindOf(err); err != nil && kind != weir.Conflict {
			return results, err
		}
		results = append(results, err)
	}

	return results, nil
}

// requestReplay writes a request for a replay to the store of the process.
func (l *log) requestReplay(ctx context.Context, id weir.ID, force bool) error {
	select {
	case d := <-l.stalls:
		time.Sleep(d)
	default:
	}

	e, err := l.sees.ReadMessage(ctx, id.Lane, id.Seq)
	switch {
	case err != nil:
		return &weir.Error{Kind: weir.Unavailable, Op: "replay", Err: err}
	case e.Stage != weir.Dead:
		return &weir.Error{Kind: weir.Conflict, Op: "replay", Message: "not dead"}
	case l.hasLater[e.Message.Key] && !force:
		return &weir.Error{Kind: weir.Conflict, Op: "replay", Message: "a later one was delivered"}
	}

	_, err = l.sees.Table.Transact(ctx, partitionOf(id.Lane),
		[]storage.Op{{Kind: storage.Insert, Key: rowKey("w_replay_", id.Seq),
			Values: map[string]any{"Seq": id.Seq}}})
	if storage.Is(err, storage.Conflict) {
		return nil
	}

	if err == nil || storage.Is(err, storage.Ambiguous) {
		w := l.world
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requested = append(w.requested,
			replayRequest{id.Lane, id.Seq, e.Message.Key, time.Now(), force})
		w.pending = append(w.pending, w.requested[len(w.requested)-1])
	}

	if err != nil {
		return &weir.Error{Kind: weir.Unavailable, Op: "replay", Err: err}
	}

	return nil
}

// grantRequests grants the requests that are at least grantDelay old, as holders would do.
func (w *world) grantRequests() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for len(w.pending) > 0 && w.grantDelay > 0 && time.Since(w.pending[0].at) >= w.grantDelay {
		g := w.pending[0]
		w.pending = w.pending[1:]
		ops := []storage.Op{
			{Kind: storage.Delete, Key: rowKey("w_replay_", g.seq)},
			{Kind: storage.Merge, Key: rowKey("m_", g.seq),
				Values: map[string]any{"Stage": string(w.outcomeOf(g.key)),
					"FinishedAt": time.Now().UTC()}},
			{Kind: storage.Delete, Key: rowKey("x_", g.seq)},
		}

		switch w.outcomeOf(g.key) {
		case weir.Dead:
			ops[2] = storage.Op{Kind: storage.Merge, Key: rowKey("x_", g.seq),
				Values: map[string]any{"DiedAt": time.Now().UTC()}}
		case refused:
			ops = []storage.Op{ops[0], {Kind: storage.Merge, Key: rowKey("m_", g.seq),
				Values: map[string]any{"ReplayRefused": "a later one was delivered"}}}
		}

		if _, err := w.account.Table().Transact(context.Background(), partitionOf(g.lane), ops); err != nil {
			w.t.Errorf("grant of a request: got %v, want no error", err)
		}
	}
}

// refused is a result of outcomeOf. It means that the request is refused, and the message stays
// dead.
const refused weir.Stage = "refused"

func (w *world) listRequested() []replayRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requested)
}

func (w *world) listFinished() []replay.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.finished)
}

var plain = replay.Spec{RatePerMinute: 600, StopAtErrorRate: 0.5}

func (p *process) startJob(s replay.Spec) replay.Job {
	p.t.Helper()
	j, err := p.Start(p.t.Context(), s)
	if err != nil || j.State != replay.Running {
		p.t.Fatalf("got %+v, %v, want State %v and no error", j, err, replay.Running)
	}
	return j
}

// waitForState waits until a job has the state s, and checks that the job's numbers add up.
func (p *process) waitForState(id string, s replay.State, limit time.Duration) replay.Job {
	p.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		j, err := p.Get(p.t.Context(), id)
		if err != nil {
			p.t.Fatal(err)
		}

		if j.Replayed != j.Delivered+j.DeadAgain+j.Otherwise+j.Waiting ||
			j.State == replay.Done && j.Matched != j.Replayed+j.Refused+j.Skipped {
			p.t.Fatalf("got %+v, want Replayed = Delivered + DeadAgain + Otherwise + Waiting, and in the end "+
				"Matched = Replayed + Refused + Skipped", j)
		}

		if j.State == s {
			return j
		}

		if time.Now().After(end) {
			p.t.Fatalf("after %s: got %+v, want state %v", limit, j, s)
		}
	}
}

// checkOrder checks that each key's replays were requested in the order of the key's messages, and
// no replay twice.
func (w *world) checkOrder() {
	w.t.Helper()
	last := map[string]int64{}
	for _, a := range w.listRequested() {
		if a.seq <= last[a.key] {
			w.t.Errorf("key %q: got message %d after %d, want a later message", a.key, a.seq,
				last[a.key])
		}
		last[a.key] = a.seq
	}
}
