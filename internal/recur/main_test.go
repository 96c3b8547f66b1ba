package recur_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/azurite"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { azurite.Main(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// world is the storage in memory that the processes of a test share.
type world struct {
	t      *testing.T
	memory *memory.Account
	faults *storagetest.Faults
	lanes  int
	final  atomic.Bool // true = log.Status reports each message as delivered
	blind  string      // name of the process whose log.Status ignores the field "final"
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, memory: memory.New(time.Now), faults: storagetest.NewFaults(), lanes: 3,
			blind: "no process"}
		if err := w.newStore("").Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, w)
	})
}

// newStore returns a store with the faults of the process "actor". If actor is empty, the store has
// no faults.
func (w *world) newStore(actor string) *lane.Store {
	s := &lane.Store{Table: w.memory.Table(), Bodies: w.memory.Blobs(), Epoch: 1, Lanes: w.lanes,
		Now: time.Now}
	if actor != "" {
		s.Table, s.Bodies = w.faults.As(actor).Table(s.Table),
			w.faults.As(actor).Blobs(s.Bodies.(*memory.Blobs))
	}
	return s
}

// newRunner returns the runner of a process whose clock is fast by the parameter "ahead".
func (w *world) newRunner(actor string, ahead time.Duration) *recur.Runner {
	w.t.Helper()
	return w.newLimitedRunner(actor, ahead, recur.Limits{})
}

func (w *world) newLimitedRunner(actor string, ahead time.Duration,
	limits recur.Limits) *recur.Runner {
	w.t.Helper()
	store := w.newStore(actor)
	now := func() time.Time { return time.Now().Add(ahead) }
	r := recur.New(recur.Config{
		Store:     &recur.Store{Table: store.Table, Bodies: store.Bodies, Now: now},
		Log:       &log{lane.NewAppender(store, quiet), store, w, actor},
		Contracts: contracts{}, Waker: noRinger{}, Now: now, Logger: quiet, Limits: limits,
		Skew: func(context.Context) (time.Duration, error) { return -ahead, nil },
	})

	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.Close(ctx)
	})

	return r
}

// startRunner returns a runner with timers for all schedules.
func (w *world) startRunner(actor string) *recur.Runner {
	w.t.Helper()
	r := w.newRunner(actor, 0)
	if err := r.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// log is a recur.Log whose Status depends on world.final.
type log struct {
	*lane.Appender
	store *lane.Store
	w     *world
	actor string
}

func (l *log) Status(ctx context.Context, id weir.ID) (weir.Status, error) {
	st, err := l.store.Messages().Status(ctx, id)
	if l.w.final.Load() && l.actor != l.w.blind {
		st.Stage = weir.Delivered
	}
	return st, err
}

type noRinger struct{}

func (noRinger) Ring(int) {}

// contracts accepts a body that begins with <a key="…" and has no '!'.
type contracts struct{}

var key = regexp.MustCompile(`^<a key="([^"]*)"`)

func (contracts) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	m := key.FindSubmatch(body)
	if m == nil || strings.Contains(string(body), "!") {
		return weir.Message{},
			&weir.Error{Kind: weir.Invalid, Op: "accept", Message: "breaks a rule",
				Problems: []weir.Problem{{Path: "/", Message: "not an a"}}}
	}

	return weir.Message{Contract: "a", Key: string(m[1]), ContentType: contentType, Body: body,
		Size: len(body)}, nil
}

const text = `<a key="k" run="{{.Run}}" due="{{.DueAt}}"/>`

func newDefinition(cron string, change ...func(*recur.Definition)) recur.Definition {
	d := recur.Definition{Cron: cron, Message: []byte(text)}
	for _, c := range change {
		c(&d)
	}
	return d
}

func (w *world) putSchedule(r *recur.Runner, name string, d recur.Definition) recur.Schedule {
	w.t.Helper()
	s, _, err := r.Put(w.t.Context(), name, d, recur.Condition{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) getSchedule(name string) recur.Schedule {
	w.t.Helper()
	s, err := (&recur.Store{Table: w.memory.Table(), Bodies: w.memory.Blobs(), Now: time.Now}).Get(
		w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// filed is a message that a schedule has appended.
type filed struct {
	Key   string
	Due   string // due time of the occurrence, from the body
	Run   int
	At    time.Time // time of acceptance
	DueAt time.Time // due time of the message; zero = none
}

var filedText = regexp.MustCompile(`^<a key="([^"]*)" run="(\d+)" due="([^"]*)"`)

func (w *world) listMessages() []filed {
	w.t.Helper()
	store := w.newStore("")
	var out []filed
	for number := range w.lanes {
		entries, err := store.ReadLog(w.t.Context(), number, 1, 1000)
		if err != nil {
			w.t.Fatal(err)
		}

		for _, e := range entries {
			if err := store.LoadBody(w.t.Context(), e); err != nil {
				w.t.Fatal(err)
			}

			m := filedText.FindSubmatch(e.Message.Body)
			if m == nil {
				w.t.Fatalf("got a message with the body %s, want a message of a schedule",
					e.Message.Body)
			}

			f := filed{Key: string(m[1]), Due: string(m[3]), At: e.Message.AcceptedAt,
				DueAt: e.Message.DueAt}
			fmt.Sscan(string(m[2]), &f.Run)
			out = append(out, f)
		}
	}

	return out
}

// listDueTimes returns the due times from the bodies of all messages, sorted by lane and then by
// position in the log. It omits the date 2000-01-01, on which virtual time begins.
func (w *world) listDueTimes() string {
	var out []string
	for _, f := range w.listMessages() {
		out = append(out, strings.TrimPrefix(f.Due, "2000-01-01T"))
	}
	return strings.Join(out, " ")
}

func passTime(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

func writesRow(c storagetest.Call) bool {
	return c.Op == "Transact" && c.Partition == "schedules"
}
