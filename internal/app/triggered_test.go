package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/residence"
	"weir/internal/storage/memory"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// StopTaking makes the drainer take no lane. A call of any trigger makes the drainer take lanes
// again, but only if the host made the call.
func TestRoutes_TriggersShowThatTheHostGoesOn(t *testing.T) {
	t.Parallel()
	own := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	for _, path := range triggers {
		for host, want := range map[string]drain.State{own.String(): drain.Working,
			"a client's": drain.Busy} {
			t.Run(path[1:]+" for "+host, func(t *testing.T) {
				t.Parallel()
				r := newTestRunning(t)
				r.drainer, r.permit = newStoppedDrainer(t)
				table := r.listRoutes()
				trigger := table[slices.IndexFunc(table, func(o route) bool { return o.path == path })]
				call := httptest.NewRequest("POST", path,
					strings.NewReader(`{"Data":{},"Metadata":{}}`))
				call.Host = host
				call = call.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey,
					net.Addr(own)))
				trigger.handler.ServeHTTP(httptest.NewRecorder(), call)
				if report := r.drainer.Look(t.Context(), 0); report.State != want {
					t.Errorf("after the call: got the lane's state %s, want %s", report.State, want)
				}
			})
		}
	}
}

// readyCMS is a CMS that accepts every message.
type readyCMS struct{}

func (readyCMS) Send(context.Context, weir.Delivery) weir.Result {
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: http.StatusOK}
}

// newStoppedDrainer returns a drainer with its permit, on which StopTaking was called. The drainer
// has one lane, with one message.
func newStoppedDrainer(t *testing.T) (*drain.Drainer, *residence.Permit) {
	t.Helper()
	account, log := memory.New(time.Now), slog.New(slog.DiscardHandler)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	message := weir.Message{Contract: "a", Key: "k", ContentType: "application/xml",
		Body: []byte("<a/>")}
	if _, err := lane.NewAppender(store, log).Append(t.Context(), message, ""); err != nil {
		t.Fatal(err)
	}

	permit := residence.NewPermit(time.Now)
	drainer := drain.New(drain.Config{Store: store, Leases: account.Leases(), Sender: readyCMS{},
		Lease:   15 * time.Second,
		Tickets: ticket.New(ticket.Config{Queue: account.Queue("tickets")}), Now: time.Now,
		Log: log, Permit: permit,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Minute, Max: time.Hour}})

	t.Cleanup(func() {
		if err := drainer.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})

	permit.StopTaking()

	return drainer, permit
}
