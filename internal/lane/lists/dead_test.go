package lists_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// finishAll makes the first messages of lane 0 final. The message with sequence number i+1 gets
// stages[i].
func finishAll(t *testing.T, s *lane.Store, stages []weir.Stage) {
	t.Helper()
	w, err := s.RaiseFence(t.Context(), 0, "holder", lane.Tail{}, func(*lane.Tail) {})
	if err != nil {
		t.Fatal(err)
	}

	tx := &lane.Transaction{}
	for i, stage := range stages {
		e, err := s.ReadMessage(t.Context(), 0, int64(i+1))
		if err != nil {
			t.Fatal(err)
		}

		ch := &lane.Change{}
		if err := ch.Finish(e, stage, time.Now()); err != nil {
			t.Fatal(err)
		}

		ch.UpdateTail(func(t *lane.Tail) { t.Cursor = e.Seq() + 1 })
		tx.TryAdd(ch)
	}

	if err := w.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
}

func TestReader_ReadDead(t *testing.T) {
	t.Parallel()
	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	for i := range 5 {
		m := weir.Message{Contract: "article", Key: fmt.Sprint("/", i),
			ContentType: "application/xml", Body: []byte("x")}
		if _, err := appender.Append(t.Context(), m, ""); err != nil {
			t.Fatal(err)
		}
	}

	at := time.Now().UTC()
	finishAll(t, store, []weir.Stage{weir.Dead, weir.Delivered, weir.Dead, weir.Dead, weir.Dead})
	l := lists.Reader{Store: store}
	found, more, err := l.ReadDead(t.Context(), 0, 0, 2)
	if err != nil || len(found) != 2 || !more || found[0].Seq != 1 || found[1].Seq != 3 {
		t.Fatalf("got %+v, more %v, %v, want messages 1 and 3, more true and no error",
			found, more, err)
	}

	if r := found[1]; r.Key != "/2" || r.Contract != "article" || r.DiedAt.Before(at) {
		t.Errorf("got %+v, want key /2, contract article, and a death after %s", r, at)
	}

	found, more, err = l.ReadDead(t.Context(), 0, found[1].Seq, 5)
	if err != nil || len(found) != 2 || more || found[0].Seq != 4 || found[1].Seq != 5 {
		t.Errorf("got %+v, more %v, %v, want messages 4 and 5, more false and no error",
			found, more, err)
	}
}
