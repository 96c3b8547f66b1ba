package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/audit"
	"weir/internal/batch"
	"weir/internal/drain"
	"weir/internal/filing"
	"weir/internal/history"
	"weir/internal/inbox"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/upkeep"
	"weir/internal/upstream"
	"weir/internal/weir"
	api "weir/internal/wire"
)

const (
	depotLanes = 2
	depotBody  = 200 << 10
	depotLease = 15 * time.Second
	depotQuota = 500
)

// clerk is the process of a depot on one day. Its parts are wired as in internal/app.
type clerk struct {
	w         *depot
	name      string
	faults    *storagetest.Faults
	isDead    atomic.Bool
	store     *lane.Store
	audit     *audit.Log
	counts    *history.Recorder
	history   *history.Keeper
	drainer   *drain.Drainer
	limits    *upstream.Set
	filer     *filing.Filer
	batches   *batch.Runner
	inbox     *inbox.Collector
	replays   *replay.Runner
	schedules *recur.Runner
	upkeep    *upkeep.Keeper
	leases    storage.Leases
	lost      int // messages that may be counted, because the answers to their tries were lost
}

func (w *depot) newClerk(name string) *clerk {
	p := &clerk{w: w, name: name, faults: storagetest.NewFaults()}
	p.faults.Set(p.drawFault)
	table := p.faults.Table(w.account.Table())
	blobs := slowBlobs{p.faults.Blobs(w.account.Blobs()), w}
	p.leases = p.faults.Leases(w.account.Leases())
	p.store = &lane.Store{Table: table, Bodies: blobs, Epoch: 1, Lanes: depotLanes, Now: time.Now,
		Rand: w.dice.newSource(name + " store")}
	p.audit = &audit.Log{Table: table, Keep: keepAudited, Now: time.Now, Logger: discardLog}
	p.counts = history.NewRecorder(time.Now, func() map[string]int64 { return nil })
	p.history = history.NewKeeper(history.Config{Table: table, Recorder: p.counts, Now: time.Now,
		Log: discardLog})
	p.drainer = drain.New(drain.Config{Store: p.store, Leases: p.leases, Sender: w.cms(),
		Tickets: silent{}, Lease: depotLease, Settle: time.Second, Attempts: 3, Observer: p.counts,
		Backoff: drain.Backoff{Min: time.Second, Max: 2 * time.Second}, Now: time.Now,
		Rand: w.dice.newSource(name + " drain"), Log: discardLog})

	p.limits = upstream.NewSet([]upstream.Definition{{Name: "shop", DailyQuota: depotQuota}},
		p.quotaTable(), time.Now, ignoreLimited{})
	appender := lane.NewAppender(p.store, discardLog)
	p.filer = &filing.Filer{Contracts: w.contracts, Log: appender, Limits: p.limits}
	p.batches = batch.New(batch.Config{Store: p.store, Blobs: blobs, Leases: p.leases,
		Lease:     depotLease,
		Contracts: w.contracts, MaxBody: depotBody, Filer: p.filer, Log: appender,
		Wake: p.drainer.Wake, Refused: func(error) {}, Now: time.Now, Logger: discardLog,
		FinishFile: func(ctx context.Context, b api.Batch, file string) error {
			return p.inbox.FinishBatch(ctx, b, file)
		}})

	p.inbox = inbox.New(inbox.Config{Inbox: p.newFiles("inbox"), Accepted: p.newFiles("accepted"),
		Rejected: p.newFiles("rejected"), Leases: p.leases, Lease: depotLease, Filer: p.filer,
		Batches:  p.batches,
		Messages: p.store.Messages(), CanSplit: true, MaxBody: depotBody, Retention: keepArchived,
		Wake: p.drainer.Wake, Refused: func(error) {}, Now: time.Now, Logger: discardLog})

	p.replays = replay.New(replay.Config{Store: p.store, Log: replay.LogOf(p.store),
		Leases: p.leases,
		Lease:  depotLease, Wake: p.drainer.Wake, Now: time.Now, Logger: discardLog})
	plans := &recur.Store{Table: table, Bodies: blobs, Now: time.Now}
	p.schedules = recur.New(recur.Config{Store: plans,
		Log:       recurringLog{appender, p.store.Messages()},
		Contracts: w.contracts, Waker: noRinger{}, Now: time.Now,
		Rand:   w.dice.newSource(name + " schedules"),
		Logger: discardLog})

	retention := &lane.Retention{Store: p.store, KeepFinal: keepMessages, KeepDead: keepMessages,
		TimeShare: 5 * time.Second}
	p.upkeep = upkeep.New(upkeep.Config{Retention: retention, Lanes: depotLanes, Table: table,
		Now:    time.Now,
		Logger: discardLog, Jobs: upkeep.Jobs(upkeep.Parts{Messages: retention, Audit: p.audit,
			History: history.Expiry{Table: table, Now: time.Now}, Batches: p.batches,
			Files: p.inbox, Now: time.Now,
			Replays: replay.Expiry{Table: table, Now: time.Now}, Schedules: plans,
			Leases: slowLeases{p}})})

	return p
}

// drawFault decides whether a call fails. All calls of a dead process fail.
func (p *clerk) drawFault(storagetest.Call) storagetest.Fault {
	if p.isDead.Load() {
		return storagetest.Fault{Kind: storagetest.FailBefore}
	}
	if !p.w.dice.drawChance(p.name+" fault", p.w.faults) {
		return storagetest.Fault{}
	}

	kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
		storagetest.Late}
	return storagetest.Fault{Kind: kinds[p.w.dice.drawBelow(p.name+" kind", 3)],
		Delay: p.w.dice.drawBetween(p.name+" late", time.Millisecond, 5*time.Second)}
}

// quotaTable returns a table without faults, except those of a dead process: a reservation whose
// answer is lost would be counted, and is allowed.
func (p *clerk) quotaTable() storage.Table {
	faults := storagetest.NewFaults()
	faults.Set(func(storagetest.Call) storagetest.Fault {
		if p.isDead.Load() {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}
		return storagetest.Fault{}
	})

	return faults.Table(p.w.account.Table())
}

func (p *clerk) newFiles(container string) storage.Files {
	return slowFiles{p.faults.Files(p.w.account.Files(container)), p.w}
}

// cms returns the CMS of the depot.
func (w *depot) cms() drain.Sender {
	if w.sender != nil {
		return w.sender
	}
	return taker{}
}

// taker is a CMS that takes or rejects each message at once. It rejects the messages of one key,
// until an operator has replayed them.
type taker struct{}

const rejectedKey = "k4"

func (taker) Send(_ context.Context, d weir.Delivery) weir.Result {
	if d.Message.Key == rejectedKey && d.Message.Replays == 0 {
		return weir.Result{Outcome: weir.OutcomeRejected, Status: 422, Reason: "no",
			StartedAt: time.Now()}
	}
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}
}

type ignoreLimited struct{}

// Limited implements upstream.Observer.
func (ignoreLimited) Limited(string, string) {}

// liveDay runs a process for some minutes, and then lets the rest of the day pass.
func (w *depot) liveDay(day int) {
	began := time.Now()
	p := w.newClerk(fmt.Sprint("day ", day))
	ctx, end := context.WithCancel(context.Background())
	p.work(ctx, day)

	for range 8 + w.dice.drawBelow("rounds", 8) {
		for number := range depotLanes {
			p.drainer.Wake(number)
		}

		_ = p.batches.ResumeOrphans(ctx)
		_ = p.schedules.Load(ctx)
		if control, err := p.store.ReadControl(ctx, 0); err == nil {
			p.replays.ResumeOrphans(control)
		}

		_ = p.inbox.Collect(ctx)
		p.upkeep.BeginPass()
		time.Sleep(time.Minute)
	}

	isKilled := w.dice.drawChance("killed", 0.3)
	if isKilled {
		p.isDead.Store(true)
	}

	end()
	p.stop(isKilled)
	w.checkQuota(p, isKilled)
	time.Sleep(24*time.Hour - time.Since(began))
}

// stop ends the process in order. The calls of a killed process do not reach storage.
func (p *clerk) stop(isKilled bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for name, stop := range map[string]func(context.Context) error{"inbox": p.inbox.Close,
		"batches": p.batches.Close,
		"replays": p.replays.Close, "schedules": p.schedules.Close, "drainer": p.drainer.Close,
		"upkeep": p.upkeep.Close} {
		if err := stop(ctx); err != nil && !isKilled {
			p.w.addProblem("stop", "%s: %s: %v", p.name, name, err)
		}
	}

	_ = p.history.Close(ctx) // storage may have failed
	if err := p.limits.ReturnReserved(ctx); err != nil && !isKilled {
		p.w.addProblem("stop", "%s: quota: %v", p.name, err)
	}
}

// work makes the rows and blobs of a day.
func (p *clerk) work(ctx context.Context, day int) {
	dice, name := p.w.dice, p.name
	for n := range dice.drawBelow(name+" entries", 12) {
		p.audit.Record(ctx, audit.Entry{Action: "change", Subject: fmt.Sprint("m", n),
			Detail: `{"key":"k1"}`})
	}

	for n := range dice.drawBelow(name+" files", p.w.files) {
		body := fmt.Sprintf(`<article path="f%d">%d</article>`, n, day)
		switch dice.drawBelow(name+" file kind", 5) {
		case 0:
			body = "no XML"
		case 1:
			body = fmt.Sprintf(`<feed><article path="b%d">%d</article></feed>`, n, day)
		}

		p.putFile(ctx, fmt.Sprintf("%c-%d-%d.xml", 'a'+dice.drawBelow(name+" letter", 26), day, n),
			body)
	}

	for n := range dice.drawBelow(name+" batches", 3) {
		_, _ = p.batches.Accept(ctx,
			batch.Spec{Mode: api.BatchAll, IdempotencyKey: fmt.Sprint("batch ", day, n)},
			strings.NewReader(fmt.Sprintf(`<feed><article path="p%d">%d</article></feed>`, n, day)))
	}

	for n := range dice.drawBelow(name+" forgotten", 3) {
		p.leaveBehind(ctx, day, n)
	}

	p.changeSchedules(ctx, day)

	for range dice.drawBelow(name+" replays", 3) {
		lately := replay.Filter{From: time.Now().Add(-36 * time.Hour)}
		_, _ = p.replays.Start(ctx,
			replay.Spec{Filter: lately, RatePerMinute: 60, StopAtErrorRate: 1})
	}

	for n := range 1 + dice.drawBelow(name+" posts", 8) {
		p.post(ctx, fmt.Sprint(day, " ", n))
	}
}

// standingPlan is the name of the schedule that is never deleted.
const standingPlan = "standing"

// changeSchedules stores a schedule of this day, deletes the one of the day before, and changes the
// standing schedule. Some of their messages are too large for a row.
func (p *clerk) changeSchedules(ctx context.Context, day int) {
	name := func(day int) string { return fmt.Sprint("of-day-", day) }
	for _, schedule := range []string{standingPlan, name(day)} {
		text := fmt.Sprint(day)
		if p.w.dice.drawChance(p.name+" large", 0.3) {
			text = noise(p.w.dice, p.name)
		}

		body := fmt.Appendf(nil, `<article path="s">%s</article>`, text)
		p.repeat(func() error {
			_, _, err := p.schedules.Put(ctx, schedule,
				recur.Definition{Cron: "@every 1h", Message: body}, recur.Condition{})
			return err
		})
	}

	p.repeat(func() error {
		err := p.schedules.Delete(ctx, name(day-1), recur.Condition{})
		if weir.KindOf(err) == weir.NotFound {
			return nil
		}
		return err
	})
}

// repeat calls a function until it succeeds, as an operator does.
func (p *clerk) repeat(change func() error) {
	for range 5 {
		if change() == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

func (p *clerk) putFile(ctx context.Context, name, body string) {
	if err := p.w.account.Files("inbox").Write(ctx, name, "application/xml", nil, strings.NewReader(body)); err != nil {
		p.w.addProblem("setup", "%v", err)
	}
}

// leaveBehind leaves what a process leaves that dies: a body without a message, a document without
// a batch, a message without a schedule, and the lease of a bulk replay.
func (p *clerk) leaveBehind(ctx context.Context, day, n int) {
	date := time.Now().UTC().Format(time.DateOnly)
	for _, name := range []string{fmt.Sprintf("%s/1.0/%032d", date, n),
		fmt.Sprintf("batches/lost-%d-%d/document/0", day, n),
		fmt.Sprintf("schedules/lost/%d-%d", day, n)} {
		if err := p.w.account.Blobs().Put(ctx, name, []byte("x")); err != nil {
			p.w.addProblem("setup", "%v", err)
		}
	}

	id := fmt.Sprintf("00000000-0000-0000-0000-%012d", day*100+n)
	_ = p.leases.Acquire(ctx, fmt.Sprintf("replay-%d-%d", day, n), id, depotLease)
}

// post sends a message of the upstream until it is answered. In some cases storage refuses or does
// not answer appends for some minutes; the upstream then repeats its post, as a message broker
// does. Some posts have no Idempotency-Key, so each of their tries is another message.
func (p *clerk) post(ctx context.Context, name string) {
	dice := p.w.dice
	text := name
	if dice.drawChance("large", 0.1) {
		text = noise(dice, name)
	}

	s := filing.Submission{ContentType: "application/xml",
		Options: filing.Options{Upstream: "shop"},
		Body: fmt.Appendf(nil, `<article path="k%d">%s</article>`,
			dice.drawBelow("key", 5), text)}

	if dice.drawChance("idempotent", 0.6) {
		s.Options.IdempotencyKey = name
	}

	failure := storage.Kind(0)
	if dice.drawChance("storage fails", 0.15) {
		failure = []storage.Kind{storage.Throttled, storage.Ambiguous}[dice.drawBelow("failure", 2)]
	}

	p.repeatPost(ctx, s, failure, 5+dice.drawBelow("tries that fail", 20))
}

// repeatPost tries a post until it is answered. The first tries fail if failure is set.
func (p *clerk) repeatPost(ctx context.Context, s filing.Submission, failure storage.Kind,
	failing int) {
	unanswered := 0
	for tries := range 60 {
		if failure != 0 && tries < failing {
			p.faults.Set(failAppends(failure))
		}

		limited, cancel := context.WithTimeout(ctx, 9*time.Second)
		_, err := p.filer.File(limited, s)
		cancel()
		p.faults.Set(p.drawFault)

		switch {
		case err == nil:
			p.w.posts++
			if s.Options.IdempotencyKey == "" {
				p.lost += unanswered
			}
			return

		case weir.KindOf(err) == weir.Limited:
			p.w.addProblem("quota", "a post was refused: %v", err)
			return
		case !lane.IsNotAppended(err):
			unanswered++
		}

		time.Sleep(5 * time.Second)
	}

	if s.Options.IdempotencyKey != "" {
		unanswered = min(unanswered, 1)
	}

	p.lost += unanswered
}

// failAppends lets storage do no transaction of a lane, and answer with an error of a kind.
func failAppends(kind storage.Kind) func(storagetest.Call) storagetest.Fault {
	return func(c storagetest.Call) storagetest.Fault {
		if c.Op != "Transact" || !strings.HasPrefix(c.Partition, "1.") {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: storagetest.FailBefore,
			Err: &storage.Error{Op: "table transact", Kind: kind, Index: -1}}
	}
}

// noise returns a text that is too large for a row, even if it is compressed.
func noise(d *dice, name string) string {
	var text strings.Builder
	for text.Len() < 130<<10 {
		fmt.Fprintf(&text, "%016x", d.drawNext(name))
	}
	return text.String()
}

// checkQuota checks that the quota of the day has counted each stored message once, however often
// it was tried.
func (w *depot) checkQuota(p *clerk, isKilled bool) {
	ctx := context.Background()
	row, err := w.account.Table().Get(ctx, "upstreams", "quota_shop")
	if err != nil && !storage.Is(err, storage.NotFound) {
		w.addProblem("setup", "%v", err)
	}

	counted, _ := row.Values["Reserved"].(int64)
	if today, _ := row.Values["Day"].(string); today != time.Now().UTC().Format(time.DateOnly) {
		counted = 0
	}

	stored, most := w.countPosts(ctx), int64(p.lost)
	if isKilled {
		most += 100 // what the process had reserved is lost
	}

	if most += stored; counted < stored || counted > most {
		w.addProblem("quota", "%s: the quota counted %d messages, want %d that are stored, and %d at most", p.name,
			counted, stored, most)
	}
}

// countPosts returns the number of today's messages of the upstream.
func (w *depot) countPosts(ctx context.Context) (n int64) {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for number := range depotLanes {
		q := storage.Query{Partition: fmt.Sprint("1.", number), From: "m_", To: "m_~"}
		for more := true; more; {
			page, err := w.account.Table().Range(ctx, q)
			if err != nil {
				w.addProblem("setup", "%v", err)
				return n
			}

			for _, row := range page.Rows {
				acceptedAt, _ := row.Values["AcceptedAt"].(time.Time)
				if row.Values["Upstream"] == "shop" && !acceptedAt.Before(today) {
					n++
				}
				q.After = row.Key
			}

			more = page.More
		}
	}

	return n
}

// listPage waits as long as a page of a listing takes. It returns false if ctx ends before that.
func (w *depot) listPage(ctx context.Context) error {
	timer := time.NewTimer(w.listTakes)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &storage.Error{Op: "list", Kind: storage.Unavailable, Index: -1, Err: ctx.Err()}
	}
}

// The ports below list slowly, and in pages of pageSize names. In memory, a marker is the last name
// of a page.

type slowBlobs struct {
	storagetest.BlobPort
	w *depot
}

func (b slowBlobs) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	if err := b.w.listPage(ctx); err != nil {
		return storage.BlobPage{}, err
	}
	page, err := b.BlobPort.List(ctx, prefix, marker)
	return b.w.cutBlobs(page), err
}

func (w *depot) cutBlobs(page storage.BlobPage) storage.BlobPage {
	if len(page.Infos) > w.pageSize {
		page.Infos = page.Infos[:w.pageSize]
		page.Next = page.Infos[w.pageSize-1].Name
	}
	return page
}

type slowLeases struct{ p *clerk }

func (l slowLeases) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	if err := l.p.w.listPage(ctx); err != nil || l.p.isDead.Load() {
		return storage.BlobPage{}, newFault("list", storage.Unavailable)
	}
	page, err := l.p.w.account.Leases().List(ctx, prefix, marker)
	return l.p.w.cutBlobs(page), err
}

func (l slowLeases) Delete(ctx context.Context, name string) error {
	if l.p.isDead.Load() {
		return newFault("delete", storage.Unavailable)
	}
	return l.p.w.account.Leases().Delete(ctx, name)
}

type slowFiles struct {
	storage.Files
	w *depot
}

func (f slowFiles) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	if err := f.w.listPage(ctx); err != nil {
		return storage.FilePage{}, err
	}

	page, err := f.Files.List(ctx, prefix, marker)
	if len(page.Files) > f.w.pageSize {
		page.Files = page.Files[:f.w.pageSize]
		page.Next = page.Files[f.w.pageSize-1].Name
	}

	return page, err
}
