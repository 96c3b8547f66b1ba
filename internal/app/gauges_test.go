package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/metrics"
	"weir/internal/calendar"
	"weir/internal/lane"
	"weir/internal/settings"
	"weir/internal/storage/azure"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// Each instance sets the gauges of lanes, even if the instance does not run the sweep. For the
// gauges, an instance reads the lanes at most twice a minute.
func TestLaneGauges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 2,
			Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		a := &App{settings: settings.Default()}
		a.settings.Lanes = 2
		a.calendar, _ = calendar.New(a.settings.Calendar)
		a.instruments = newInstruments(&a.settings, a.calendar, &azure.Counter{},
			a.countWaitingEvents)
		g := (&running{App: a, pipeline: &pipeline{store: store}}).newLaneGauges()
		var reads atomic.Int64
		readLane := g.readLane
		g.readLane = func(ctx context.Context, number int) error {
			reads.Add(1)
			return readLane(ctx, number)
		}

		h := g.refreshBefore(metrics.New(a.instruments.metrics.Registry,
			slog.New(slog.DiscardHandler)))
		shown := func() string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
				"/api/metrics", nil))
			return w.Body.String()
		}

		receipt, err := lane.NewAppender(store, slog.New(slog.DiscardHandler)).Append(t.Context(),
			weir.Message{Contract: "a", Key: "k", ContentType: "application/xml",
				Body: []byte("<a/>")}, "")
		if err != nil {
			t.Fatal(err)
		}

		for range 3 {
			if text, want := shown(),
				`weir_lane_waiting{lane="`+string(rune('0'+receipt.Message.ID.Lane))+
					`"} 1`; !strings.Contains(text, want) {
				t.Errorf("got metrics without %q, want it in them", want)
			}
		}

		if n := reads.Load(); n != 2 {
			t.Errorf("after three scrapes: got %d reads of two lanes, want one of each", n)
		}

		serving, stop := context.WithCancel(t.Context())
		a.refreshGauges(t.Context()) // reads nothing, because a.running is still nil
		a.running.Store(&running{gauges: g, serving: serving})
		a.refreshGauges(t.Context())
		if n := reads.Load(); n != 2 {
			t.Errorf("after an export at the same time: got %d reads, want the 2 of the scrapes", n)
		}

		time.Sleep(gaugesMaxAge)
		a.refreshGauges(t.Context())
		stop()
		time.Sleep(gaugesMaxAge)
		a.refreshGauges(t.Context())

		if n := reads.Swap(2); n != 4 {
			t.Errorf("after three exports, the last by a server that stops: got %d reads, want 4",
				n)
		}

		a.running.Store(nil)
		g.readLane = func(context.Context, int) error { reads.Add(1); return errors.New("away") }

		if text := shown(); !strings.Contains(text, "weir_lane_waiting") || reads.Load() != 4 {
			t.Errorf("with lanes that cannot be read: got %d reads and the metrics\n%s\nwant 4, and the last values",
				reads.Load(), text)
		}
	})
}
