package inbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/inbox"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// leasedFiles refuses to delete files, as storage does while their writers have leases on them.
type leasedFiles struct {
	storage.Files
	names *[]string
	kind  storage.Kind // of the refusal
}

func (l leasedFiles) Delete(ctx context.Context, name string, version storage.ETag) error {
	if slices.Contains(*l.names, name) {
		return &storage.Error{Kind: l.kind, Op: "file delete"}
	}
	return l.Files.Delete(ctx, name, version)
}

// recorder is a CMS that accepts each message.
type recorder struct {
	mu   sync.Mutex
	sent []string
}

// Send implements drain.Sender.
func (r *recorder) Send(_ context.Context, d weir.Delivery) weir.Result {
	r.mu.Lock()
	r.sent = append(r.sent, string(d.Message.Body))
	r.mu.Unlock()
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now(),
		Duration: time.Millisecond}
}

// A version of a file becomes one message, however long it stays in the inbox: longer than the
// retention of messages and of files. The log names the file all the time. At the end Weir removes
// the file, and in the end its marker.
func TestCollect_AFileThatCannotBeDeletedIsTakenOnce(t *testing.T) {
	for name, kind := range map[string]storage.Kind{"leased": storage.Conflict,
		"refused as another version": storage.Precondition} {
		t.Run(name, func(t *testing.T) { simulateInbox(t, func(w *world) { w.keepUndeletable(kind) }) })
	}
}

func (w *world) keepUndeletable(kind storage.Kind) {
	var log bytes.Buffer
	leased := []string{"old.xml", "feed.xml", "bad.xml"}
	p := w.startProcess(func(cfg *inbox.Config) {
		cfg.Inbox = leasedFiles{cfg.Inbox, &leased, kind}
		cfg.Logger = slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelError}))
	})
	defer p.stopProcess()
	cms := &recorder{}
	d := drain.New(drain.Config{Store: w.lanes.Store, Leases: w.lanes.Account.Leases(), Sender: cms,
		Tickets: lanetest.NoTickets{}, Lease: 15 * time.Second, Settle: 2 * time.Second,
		Attempts: 9,
		Backoff:  drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now,
		Log: lanetest.Quiet, Name: "one"})
	defer lanetest.Close(w, d)
	passDay := func() {
		for range 12 {
			p.takeFiles()
			for n := range w.lanes.Store.Lanes {
				d.Wake(n)
				r := &lane.Retention{Store: w.lanes.Store, KeepFinal: 7 * 24 * time.Hour,
					KeepDead: 30 * 24 * time.Hour, TimeShare: time.Minute}
				if _, err := r.RunLane(w.Context(), n); err != nil {
					w.Fatal(err)
				}
			}

			time.Sleep(2 * time.Hour)
		}

		if err := p.removeOld(w.Context()); err != nil {
			w.Fatal(err)
		}

		if _, err := p.batches.RemoveExpired(w.Context()); err != nil {
			w.Fatal(err)
		}
	}

	w.dropFile("old.xml", newArticle("/a", 1))
	w.dropFile("feed.xml", "<feed>"+newArticle("/f", 1)+"</feed>")
	w.dropFile("bad.xml", "<article/>")
	passDay()
	w.dropFile("new.xml", newArticle("/a", 2))

	for range 75 {
		log.Reset()
		passDay()

		for _, name := range leased {
			if !strings.Contains(log.String(), name) {
				w.Fatalf("the log of a day is %s, want %s in it", log.String(), name)
			}
		}
	}

	want := []string{newArticle("/a", 1), newArticle("/a", 2), newArticle("/f", 1)}
	slices.Sort(cms.sent)
	if !slices.Equal(cms.sent, want) {
		w.Errorf("the CMS got %q, want %q", cms.sent, want)
	}

	if got := w.calls.Refusals.Load(); got != 1 {
		w.Errorf("got %d refusals, want 1", got)
	}

	w.checkNames("inbox", w.inbox, "bad.xml", "feed.xml", "old.xml")

	leased = nil
	passDay()
	w.checkNames("inbox", w.inbox)
	w.checkNames("accepted", w.accepted)
	if len(cms.sent) != len(want) {
		w.Errorf("the CMS got %q after the leases ended, want no further message", cms.sent)
	}
}

// A new version of a file that was left is taken. The marker of the old version is removed after
// the retention.
func TestCollect_ANewVersionOfALeftFileIsTaken(t *testing.T) {
	simulateInbox(t, func(w *world) {
		leased := []string{"a.xml"}
		p := w.startProcess(func(cfg *inbox.Config) {
			cfg.Inbox = leasedFiles{cfg.Inbox, &leased, storage.Conflict}
		})
		defer p.stopProcess()
		w.dropFile("a.xml", newArticle("/a", 1))

		for range 5 {
			p.takeFiles()
			time.Sleep(time.Minute)
		}

		leased = nil
		w.dropFile("a.xml", newArticle("/a", 2))
		p.takeFiles()

		if got, want := w.lanes.BodiesOf(
			"/a"), []string{newArticle("/a", 1), newArticle("/a", 2)}; !slices.Equal(got, want) {
			t.Errorf("got the messages %q, want %q", got, want)
		}

		time.Sleep(retention + time.Hour)
		if err := p.removeOld(w.Context()); err != nil {
			t.Fatal(err)
		}

		w.checkNames("accepted", w.accepted)
	})
}
