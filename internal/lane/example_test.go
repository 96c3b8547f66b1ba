package lane_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// An appender appends messages to the log of their key's lane. A second message with the same
// idempotency key is not appended: the appender returns the first message.
func ExampleAppender() {
	ctx := context.Background()
	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(ctx); err != nil {
		panic(err)
	}

	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	for _, title := range []string{"one", "two", "two"} {
		m := weir.Message{Contract: "article", Key: "/news/1", ContentType: "application/xml"}
		m.Body = []byte("<article>" + title + "</article>")
		r, err := appender.Append(ctx, m, "submission-"+title)
		if err != nil {
			panic(err)
		}

		fmt.Println(r.Message.ID.Seq, r.Stage, r.Duplicate)
	}

	entries, err := store.ReadLog(ctx, 0, 1, 10)
	if err != nil {
		panic(err)
	}

	for _, e := range entries { // ReadLog does not decompress the bodies
		if err := store.LoadBody(ctx, e); err != nil {
			panic(err)
		}
		fmt.Println(e.Seq(), e.Message.Key, string(e.Message.Body))
	}
	// Output:
	// 1 queued false
	// 2 queued false
	// 2 queued true
	// 1 /news/1 <article>one</article>
	// 2 /news/1 <article>two</article>
}

// A new holder raises the fence of the lane. From then on the former holder cannot commit.
func ExampleStore_RaiseFence() {
	ctx := context.Background()
	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(ctx); err != nil {
		panic(err)
	}

	keep := func(*lane.Tail) {}
	former, err := store.RaiseFence(ctx, 0, "first holder", lane.Tail{}, keep)
	if err != nil {
		panic(err)
	}

	holder, err := store.RaiseFence(ctx, 0, "second holder", lane.Tail{}, keep)
	if err != nil {
		panic(err)
	}

	fmt.Println(former.Commit(ctx, &lane.Transaction{}))
	fmt.Println(holder.Commit(ctx, &lane.Transaction{}), holder.Tail().Fence)
	// Output:
	// fenced: another holder has the lane
	// <nil> 2
}
