package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/residence"
	"weir/internal/residence/hostwatch"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/ticket"
)

// fakeHost is a host that stops and ends after given times.
type fakeHost struct {
	stops time.Duration // time until the host stops; 0 = the process cannot notice the stop
	ends  time.Duration // time from the call of End until the host is gone
}

func (h fakeHost) Stop(ctx context.Context) (hostwatch.Event, error) {
	if h.stops == 0 {
		return "", hostwatch.ErrBlind
	}

	select {
	case <-time.After(h.stops):
		return hostwatch.Stops, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (h fakeHost) End(ctx context.Context) error {
	select {
	case <-time.After(h.ends):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestServer_WatchesTheHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host   fakeHost
		opens  time.Duration // time until storage opens
		cancel time.Duration // time until the process gets a signal
		closed time.Duration // time until the drainer is closed; 0 = it stays open
		// error with which HostWatch ends the process; nil = the process goes on
		over  error
		after time.Duration // time until HostWatch returns
	}{
		"StopsAndEnds": {fakeHost{time.Minute, time.Second}, 0, time.Hour, time.Minute,
			residence.ErrHostGone, time.Minute + time.Second},
		"StopsAndStays": {fakeHost{time.Minute, time.Hour}, 0, time.Hour, time.Minute,
			residence.ErrHostStays, 6 * time.Minute},
		"StopsBeforeStorageOpens": {fakeHost{time.Minute, time.Minute}, 90 * time.Second, time.Hour,
			90 * time.Second, residence.ErrHostGone, 2 * time.Minute},
		"CannotBeWatched": {fakeHost{0, 2 * time.Minute}, 0, time.Hour, 0,
			residence.ErrHostGone, 2 * time.Minute},
		"TheProcessGetsASignalFirst": {fakeHost{time.Hour, time.Hour}, 0, time.Minute, 0, nil,
			time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				account := memory.New(time.Now)
				store := &lane.Store{Table: account.Table(), Lanes: 1, Now: time.Now}
				if err := store.Open(t.Context()); err != nil {
					t.Fatal(err)
				}

				s := newServer(&App{log: slog.New(slog.DiscardHandler)}, time.Now())
				drainer := drain.New(drain.Config{Store: store, Leases: account.Leases(),
					Lease: 15 * time.Second,
					Now:   time.Now, Log: s.log, Permit: residence.NewPermit(time.Now)})
				defer drainer.Close(t.Context())
				recorder := history.NewRecorder(time.Now, func() map[string]int64 { return nil })
				keeper := history.NewKeeper(history.Config{Table: store.Table, Recorder: recorder,
					Now: time.Now, Log: s.log})
				defer keeper.Close(t.Context())
				recorder.Accepted(0, 1)
				tickets := ticket.New(ticket.Config{Queue: account.Queue("tickets")})
				time.AfterFunc(c.opens, func() {
					s.running.Store(
						&running{pipeline: &pipeline{drainer: drainer, tickets: tickets},
							history: keeper})
					close(s.opened)
				})

				ctx, cancel := context.WithTimeout(t.Context(), c.cancel)
				defer cancel()
				began := time.Now()

				if c.closed > 0 {
					time.AfterFunc(c.closed+time.Millisecond, func() {
						if r := drainer.Look(t.Context(), 0); !errors.Is(r.Err, drain.ErrClosed) {
							t.Errorf("after the host stopped: got the report %+v, want %v", r,
								drain.ErrClosed)
						}

						page, err := store.Table.Range(t.Context(),
							storage.Query{Partition: "history"})
						if err != nil || len(page.Rows) != 1 {
							t.Errorf(
								"after the host stopped: got %d rows of the history (%v), want 1",
								len(page.Rows), err)
						}
					})
				}

				s.newHostWatch(c.host).Run(ctx)
				var over error
				select {
				case over = <-s.fatal:
				default:
				}

				if took := time.Since(began); over != c.over || took != c.after {
					t.Errorf("HostWatch: got the end %v after %s, want %v after %s", over, took,
						c.over, c.after)
				}
			})
		})
	}
}
