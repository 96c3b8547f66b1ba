package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
)

// The writers of a process that is killed. Each lane appends message after message, as a receiver
// does: a body as a blob, then head and the message in one transaction, then the mark. Behind it
// the lane erases, and removes. After each append the process prints the lane and the number, as a
// receiver answers 202.
const (
	writerLanes = 4
	erasedAfter = 8  // messages after which a message is erased
	goneAfter   = 24 // messages after which it is removed
)

func lanePartition(lane int) string     { return fmt.Sprintf("1.%d", lane) }
func messageRow(n int64) string         { return fmt.Sprintf("m_%019d", n) }
func bodyBlob(lane int, n int64) string { return fmt.Sprintf("%d/%d", lane, n) }
func textOf(lane int, n int64) string   { return fmt.Sprintf("message %d of lane %d. ", n, lane) }
func bodyOf(lane int, n int64) []byte   { return bytes.Repeat([]byte(textOf(lane, n)), 700) }
func hasBlob(n int64) bool              { return n%4 == 0 }
func isErased(n, newest int64) bool     { return n <= newest-erasedAfter }

// runWriters works until the process is killed, or until an error, which it prints.
func runWriters(dir string) {
	store, err := embedded.Open(dir,
		embedded.Options{Program: "writers", OnBroken: func(err error) {
			fmt.Printf("broken: %v\n", err)
			os.Exit(1)
		}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}

	var out sync.Mutex
	errs := make(chan error, writerLanes+2)
	for lane := range writerLanes {
		go func() {
			errs <- appendMessages(store, lane, func(n int64) {
				out.Lock()
				defer out.Unlock()
				fmt.Printf("%d %d\n", lane, n)
			})
		}()
	}

	go func() { errs <- moveTickets(store) }()
	go func() { errs <- scrubAndBackUp(store) }()
	fmt.Fprintln(os.Stderr, <-errs)
}

func appendMessages(store *embedded.Store, lane int, print func(int64)) error {
	ctx, table, partition := context.Background(), store.Table(), lanePartition(lane)
	head, err := table.Get(ctx, partition, "!head")
	if storage.Is(err, storage.NotFound) {
		head = storage.Row{Values: map[string]any{"N": int64(0)}}
	} else if err != nil {
		return err
	}

	for n := head.Values["N"].(int64) + 1; ; n++ {
		if hasBlob(n) {
			err := again(func() error { return store.Bodies().Put(ctx, bodyBlob(lane, n), bodyOf(lane, n)) })
			if err != nil {
				return err
			}
		}

		text := map[string]any{"Text": strings.Repeat(textOf(lane, n), 30)}
		ops := []storage.Op{{Kind: storage.Upsert, Key: "!head", Values: map[string]any{"N": n}},
			{Kind: storage.Insert, Key: messageRow(n), Values: text}}
		if head.ETag != "" {
			ops[0].Kind, ops[0].IfMatch = storage.Replace, head.ETag
		}

		etags, err := transactAgain(ctx, table, partition, ops)
		if err != nil {
			return err
		}

		head.ETag = etags[0]
		print(n)

		if hasBlob(n) {
			err := again(func() error { return store.Bodies().Mark(ctx, bodyBlob(lane, n)) })
			if err != nil {
				return err
			}
		}

		if err := tidyLane(store, lane, n); err != nil {
			return err
		}
	}
}

// tidyLane erases an old message and its body, and removes an older one.
func tidyLane(store *embedded.Store, lane int, newest int64) error {
	ctx, table, partition := context.Background(), store.Table(), lanePartition(lane)
	if n := newest - erasedAfter; n > 0 {
		_, err := transactAgain(ctx, table, partition,
			[]storage.Op{{Kind: storage.Upsert, Key: messageRow(n),
				Values: map[string]any{"Text": "erased"}}})
		if err == nil && hasBlob(n) {
			err = again(func() error { return ignoreMissing(store.Bodies().Delete(ctx, bodyBlob(lane, n))) })
		}

		if err != nil {
			return err
		}
	}

	if n := newest - goneAfter; n > 0 {
		_, err := transactAgain(ctx, table, partition,
			[]storage.Op{{Kind: storage.Delete, Key: messageRow(n)}})
		return ignoreMissing(err)
	}

	return nil
}

// transactAgain repeats a transaction of which nothing was done, as an appender does.
func transactAgain(ctx context.Context, table storage.Table, partition string,
	ops []storage.Op) (etags []storage.ETag, err error) {
	err = again(func() error {
		etags, err = table.Transact(ctx, partition, ops)
		return err
	})

	return etags, err
}

// again repeats a write of which nothing was done, and prints its errors.
func again(write func() error) error {
	for {
		err := write()
		if !storage.Is(err, storage.Unavailable) {
			return err
		}
		fmt.Printf("error: %s\n", storage.Describe(err))
		<-time.After(20 * time.Millisecond)
	}
}

func ignoreMissing(err error) error {
	if storage.Is(err, storage.NotFound) {
		return nil
	}

	return err
}

func moveTickets(store *embedded.Store) error {
	ctx, q := context.Background(), store.Tickets()
	for n := 0; ; n++ {
		if err := again(func() error { return q.Put(ctx, fmt.Sprintf("ticket %d", n), 0) }); err !=
			nil {
			return err
		}

		var got []storage.QueueMessage
		err := again(func() (err error) {
			got, err = q.Get(ctx, 32, time.Minute)
			return err
		})
		if err != nil {
			return err
		}

		for _, m := range got {
			if err := again(func() error { return q.Delete(ctx, m) }); err != nil {
				return err
			}
		}
	}
}

func scrubAndBackUp(store *embedded.Store) error {
	for {
		if err := again(func() error { return store.Scrub(context.Background()) }); err != nil {
			return err
		}

		if err := store.Backup(context.Background(), io.Discard); err != nil &&
			!errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
}

// checkWriters opens the store, and checks that it has every message that was printed, whole and in
// order.
func checkWriters(t *testing.T, dir string, printed map[int]int64) {
	t.Helper()
	if r, err := embedded.CheckFile(t.Context(), dir, embedded.Options{}); err != nil ||
		len(r.Problems) > 0 {
		t.Fatalf("got %+v, %v, want a store without problems", r, err)
	}

	store, err := embedded.Open(dir, embedded.Options{})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	for lane := range writerLanes {
		checkLane(t, store, lane, printed[lane])
	}
}

func checkLane(t *testing.T, store *embedded.Store, lane int, printed int64) {
	t.Helper()
	ctx, newest := t.Context(), int64(0)
	if head, err := store.Table().Get(ctx, lanePartition(lane), "!head"); err == nil {
		newest = head.Values["N"].(int64)
	} else if !storage.Is(err, storage.NotFound) {
		t.Fatal(err)
	}

	if newest < printed {
		t.Errorf("lane %d: head is at %d, want the printed %d at least: messages are lost", lane,
			newest, printed)
	}

	for n := max(1, newest-goneAfter+1); n <= newest; n++ {
		row, err := store.Table().Get(ctx, lanePartition(lane), messageRow(n))
		if err != nil {
			t.Errorf("lane %d, message %d of %d: %v, want the row", lane, n, newest, err)
			continue
		}

		want := strings.Repeat(textOf(lane, n), 30)

		// A process that was killed may have left an old message as it was.
		if text := row.Values["Text"]; text != want && (text != "erased" || !isErased(n, newest)) {
			t.Errorf("lane %d, message %d of %d has the text %.40q, want its own", lane, n,
				newest, text)
		}

		if hasBlob(n) && !isErased(n, newest) {
			data, err := store.Bodies().Get(ctx, bodyBlob(lane, n))
			if err != nil || !bytes.Equal(data, bodyOf(lane, n)) {
				t.Errorf("lane %d, message %d of %d: %d bytes, %v, want its body", lane, n, newest,
					len(data), err)
			}
		}
	}

	page, err := store.Table().Range(ctx,
		storage.Query{Partition: lanePartition(lane), From: messageRow(newest + 1), To: "n"})
	if err != nil || len(page.Rows) > 0 {
		t.Errorf("lane %d has %d rows beyond head, %v, want none", lane, len(page.Rows), err)
	}
}
