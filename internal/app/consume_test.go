package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// With intake.rabbitmq.deliver, weir consume delivers what it has stored, although no process of
// the app gets the ticket. Without it, the message waits for such a process.
func TestConsume_Delivers(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]weir.Stage{"true": weir.Delivered, "false": weir.Queued} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			written := make(chan struct{}, 1)
			cms := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				written <- struct{}{}
			}))
			t.Cleanup(cms.Close)
			a, err := New(newEnvironment(t, `
delivery: { url: "`+cms.URL+`" }
intake: { rabbitmq: { url: "amqp://127.0.0.1/", deliver: `+setting+`, queues: [{ name: q }] } }
contracts: [{ name: article, root: article, key: ./@path }]
`), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}

			account := memoryAccount{memory.New(time.Now)}
			a.account = account
			store := &lane.Store{Table: account.Table(), Bodies: account.Bodies(), Lanes: 1,
				Now: time.Now}
			if err := store.Open(t.Context()); err != nil {
				t.Fatal(err)
			}

			work := a.newConsumeWork(t.Context(), store)
			filed, err := work.appender.Append(t.Context(),
				weir.Message{Contract: "article", Key: "/a",
					ContentType: "application/xml", Body: []byte("<article path='/a'/>")}, "id-1")
			if err != nil {
				t.Fatal(err)
			}

			work.wake(filed.Message.ID.Lane)
			if want == weir.Delivered {
				<-written
			}

			if err := work.close(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}

			st, err := store.Messages().Status(t.Context(), filed.Message.ID)
			if err != nil || st.Stage != want {
				t.Errorf("got the stage %s, %v, want %s", st.Stage, err, want)
			}
		})
	}
}
