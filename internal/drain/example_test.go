package drain_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// printingCMS is a drain.Sender that prints each message and reports it as delivered.
type printingCMS struct{}

func (printingCMS) Send(_ context.Context, d weir.Delivery) weir.Result {
	fmt.Printf("fence %d, attempt %d: %s\n", d.Fence, d.Attempt, d.Message.Body)
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}
}

// After a call of Wake, a Drainer delivers the messages of the lane in order.
func ExampleDrainer() {
	ctx := context.Background()
	account, log := memory.New(time.Now), slog.New(slog.DiscardHandler)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(ctx); err != nil {
		panic(err)
	}

	tickets := ticket.New(ticket.Config{Queue: account.Queue("tickets"), Epoch: store.Epoch})
	drainer := drain.New(drain.Config{
		Store: store, Leases: account.Leases(), Sender: printingCMS{}, Tickets: tickets,
		Lease: 15 * time.Second, Settle: 2 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute},
		Now: time.Now, Log: log,
	})

	appender := lane.NewAppender(store, log)
	var last weir.ID
	for _, body := range []string{"<first/>", "<second/>"} {
		r, err := appender.Append(ctx,
			weir.Message{Contract: "article", Key: "/news/1", Body: []byte(body)}, "")
		if err != nil {
			panic(err)
		}
		last = r.Message.ID
	}

	final, forget := drainer.AwaitFinal(last)
	defer forget()
	drainer.Wake(0)
	<-final
	st, err := store.Messages().Status(ctx, last)
	fmt.Println(st.Stage, err)
	fmt.Println(drainer.Close(ctx))
	// Output:
	// fence 1, attempt 1: <first/>
	// fence 1, attempt 1: <second/>
	// delivered <nil>
	// <nil>
}
