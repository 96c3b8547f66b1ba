//go:build !race || long

package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/audit"
	"weir/internal/batch"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/storage/memory"
	"weir/internal/weir"
	api "weir/internal/wire"
)

const (
	lifeDays = 8
	// lifeKeys is the number of new keys, files and schedules a day.
	lifeKeys = 312
	// mostInMemory is the largest length of a map or a list of a process that rests. It has seen
	// more keys, files, messages and schedules each day.
	mostInMemory = lifeKeys / 2
)

// cached has the maps and lists that keep what they have seen, up to a bound of their own. Each has
// a test beside its code.
var cached = map[string]int{
	"drain.trackedKeys.keys":    lane.MaxDeadKeys,
	"upstream.quota.remembered": 1000,
	"recur.Schedule.columns":    mostInMemory,
}

// TestLongLife runs one process for days. Each hour it gets new keys, files, batches, schedules and
// bulk replays, and a message of some keys dies. When it rests, no map and no list of the process
// may have grown with what it has seen: the test finds all of them by reflection.
func TestLongLife(t *testing.T) {
	seeds, from := readSeeds(t, "LIFE", 1), readNumber(t, "LIFE_FROM", 1)
	for i := range seeds {
		liveLong(t, from+i)
	}
}

func liveLong(t *testing.T, seed uint64) {
	t.Helper()
	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Split: "/feed/article"}}, contract.Limits{MaxBody: depotBody})
	if err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, func(t *testing.T) {
		w := &depot{
			dice:      newDice(seed),
			sender:    hesitant{},
			account:   memory.New(time.Now),
			contracts: set,
			began:     time.Now(),
			pageSize:  1000,
			listTakes: time.Millisecond,
			firstSeen: map[string]time.Time{},
			kept:      map[string]int{},
		}

		store := &lane.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Lanes: depotLanes,
			Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		p := w.newClerk("resident")
		hook := &hesitantHook{}
		mail := newMail(p, hook)
		posted := 0
		for day := range lifeDays {
			posted += p.liveOn(t, mail, day)
			synctest.Wait()
			w.checkMemory(t, day, p, mail)
		}

		p.stop(false)
		if err := mail.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if events := int(hook.asked.Load()); posted != lifeDays*lifeKeys || events < posted {
			t.Errorf("got %d messages and %d requests for their events, want %d and as many at least", posted, events,
				lifeDays*lifeKeys)
		}

		if len(w.problems) > 0 {
			t.Errorf("seed %d: %.2000s", seed, strings.Join(w.problems, "\n"))
		}
	})
}

// hesitant is a CMS that fails at the first attempt of most messages.
type hesitant struct{}

// Send implements drain.Sender.
func (hesitant) Send(ctx context.Context, d weir.Delivery) weir.Result {
	if d.Attempt == 1 && d.Message.ID.Seq%3 > 0 {
		return weir.Result{Outcome: weir.OutcomeRetry, Status: 500, Reason: "busy",
			StartedAt: time.Now()}
	}
	return taker{}.Send(ctx, d)
}

// newMail adds the sender of callbacks to the process.
func newMail(p *clerk, hook http.RoundTripper) *notify.Sender {
	store := *p.store
	mail := notify.New(notify.Config{Store: &store, Leases: p.leases, Transport: hook,
		Now: time.Now, Log: discardLog, Rand: p.w.dice.newSource("mail"),
		Callbacks: notify.Callbacks{AllowedHosts: []string{"hooks.test"}, Secret: mailKeys}})
	p.store.Notifier = mail
	return mail
}

// hesitantHook is a receiver that refuses each third event, and then takes it.
type hesitantHook struct{ asked atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (h *hesitantHook) RoundTrip(r *http.Request) (*http.Response, error) {
	status := http.StatusNoContent
	if h.asked.Add(1)%3 == 0 {
		status = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
}

// liveOn lets the process work for a day, and returns the number of messages that it has taken.
func (p *clerk) liveOn(t *testing.T, mail *notify.Sender, day int) (posted int) {
	t.Helper()
	ctx := t.Context()
	for hour := range 24 {
		for n := range lifeKeys / 24 {
			name := fmt.Sprintf("%d-%d-%d", day, hour, n)
			key := "key " + name
			if n == 0 {
				key = rejectedKey
			}

			_, err := p.filer.File(ctx, filing.Submission{ContentType: "application/xml",
				Options: filing.Options{IdempotencyKey: name, Upstream: "shop",
					Callback: "https://hooks.test/" + name},
				Body: fmt.Appendf(nil, `<article path="%s">1</article>`, key)})
			if err != nil {
				t.Fatal(err)
			}

			posted++
			p.putFile(ctx, name+".xml", fmt.Sprintf(`<article path="file %s">1</article>`, name))
			p.audit.Record(ctx,
				audit.Entry{Action: "change", Subject: name, Detail: `{"key":"k1"}`})
			p.changeSchedule(ctx, "s-"+name)
		}

		for n := range lifeKeys / 24 {
			_, err := p.batches.Accept(
				ctx,
				batch.Spec{Mode: api.BatchAll, IdempotencyKey: fmt.Sprint("batch ", day, hour, n)},
				strings.NewReader(fmt.Sprintf(`<feed><article path="p %d %d">1</article></feed>`,
					hour, n)),
			)
			if err != nil {
				t.Fatal(err)
			}
		}

		_, _ = p.replays.Start(ctx, replay.Spec{RatePerMinute: 60, StopAtErrorRate: 1})
		p.rest(ctx, mail)
		time.Sleep(50 * time.Minute)
	}

	return posted
}

// changeSchedule creates a schedule, lets it wait, and deletes it.
func (p *clerk) changeSchedule(ctx context.Context, name string) {
	_, _, _ = p.schedules.Put(
		ctx,
		name,
		recur.Definition{Cron: "@every 10m", Message: []byte(`<article path="s">1</article>`)},
		recur.Condition{},
	)

	_ = p.schedules.Delete(ctx, name, recur.Condition{})
}

// rest lets the process do all that there is to do, as sweeps do.
func (p *clerk) rest(ctx context.Context, mail *notify.Sender) {
	for range 5 {
		for number := range depotLanes {
			p.drainer.Wake(number)
			if control, err := p.store.ReadControl(ctx, number); err == nil {
				mail.ObserveLane(number, control)
			}
		}

		_ = p.batches.ResumeOrphans(ctx)
		_ = p.schedules.Load(ctx)
		if control, err := p.store.ReadControl(ctx, 0); err == nil {
			p.replays.ResumeOrphans(control)
		}

		_ = p.inbox.Collect(ctx)
		p.upkeep.BeginPass()
		time.Sleep(2 * time.Minute)
	}
}

// checkMemory checks the length of each map and each list that the process can reach.
func (w *depot) checkMemory(t *testing.T, day int, p *clerk, mail *notify.Sender) {
	t.Helper()
	m := &memoryWalk{seen: map[uintptr]bool{}, longest: map[string]int{}}
	for _, part := range []any{p.store, p.audit, p.counts, p.history, p.drainer, p.limits, p.filer,
		p.batches, p.inbox, p.replays, p.schedules, p.upkeep, mail} {
		m.visit(reflect.ValueOf(part), reflect.TypeOf(part).String())
	}

	if day == 0 {
		t.Logf("after a day: %v", m.longest)
	}

	if len(m.longest) < 30 {
		t.Errorf("got %d maps and lists, want more: the walk does not reach the process",
			len(m.longest))
	}

	for _, place := range slices.Sorted(maps.Keys(m.longest)) {
		most := mostInMemory
		if bound := cached[place]; bound > 0 {
			most = bound
		}

		if n := m.longest[place]; n > most {
			w.addProblem("memory", "day %d: %s has %d entries, want %d at most", day,
				place, n, most)
		}
	}
}

// memoryWalk visits the values that a value refers to.
type memoryWalk struct {
	seen    map[uintptr]bool
	longest map[string]int // by the place of a map or list, such as drain.breaker.suspects
}

// foreign are the beginnings of the names of types that belong to no process, or whose contents are
// fixed.
var foreign = []string{"memory.", "storagetest.", "simulation_test.", "contract.", "time.Location",
	"reflect.", "slog.", "rand."}

func (m *memoryWalk) visit(v reflect.Value, place string) {
	name := v.Type().String()
	for _, f := range foreign {
		if strings.HasPrefix(strings.TrimLeft(name, "*[]"), f) {
			return
		}
	}

	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !m.hasSeen(v) {
			m.visit(v.Elem(), place)
		}

	case reflect.Interface:
		if !v.IsNil() {
			m.visit(v.Elem(), place)
		}

	case reflect.Struct:
		for i := range v.NumField() {
			m.visit(v.Field(i), v.Type().String()+"."+v.Type().Field(i).Name)
		}

	case reflect.Map:
		if v.IsNil() || m.hasSeen(v) {
			return
		}

		m.longest[place] = max(m.longest[place], v.Len())
		for entries := v.MapRange(); entries.Next(); {
			m.visit(entries.Value(), place)
		}

	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			m.longest[place] = max(m.longest[place], v.Len())
			for i := range v.Len() {
				m.visit(v.Index(i), place)
			}
		}
	}
}

func (m *memoryWalk) hasSeen(v reflect.Value) bool {
	at := v.Pointer()
	wasSeen := m.seen[at]
	m.seen[at] = true
	return wasSeen
}
