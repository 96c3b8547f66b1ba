package lane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

// One body is marked as used, a message refers to a second body, and a third body is forgotten. On
// the day on which the bodies are stored, the search removes nothing. Later it marks the second
// body, and removes only the third one.
func TestRetention_Forgotten(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		blobs := b.account.Blobs()
		day := time.Now().UTC().Format("2006-01-02")
		for _, name := range []string{"marked", "used", "forgotten"} {
			if err := blobs.Put(t.Context(), day+"/1.0/"+name, nil); err != nil {
				t.Fatal(err)
			}
		}

		blobs.Mark(t.Context(), day+"/1.0/marked")
		_, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Insert, Key: "m_" + lane.OrderPos(1),
				Values: map[string]any{"Blob": day + "/1.0/used"}}})
		if err != nil {
			t.Fatal(err)
		}

		r := &lane.Retention{Store: b.store, KeepFinal: time.Hour, KeepDead: time.Hour,
			TimeShare: time.Minute}

		for range 3 {
			if _, err := r.RemoveForgottenBodies(t.Context()); err != nil {
				t.Fatal(err)
			}

			infos := b.blobInfos()
			if time.Now().UTC().Format("2006-01-02") == day && len(infos) != 3 {
				t.Errorf("got %v on the first day, want all 3 blobs", infos)
			}

			time.Sleep(24 * time.Hour)
		}

		infos := b.blobInfos()
		for _, info := range infos {
			if !info.Marked {
				t.Errorf("%s is not marked, want it marked as referred to", info.Name)
			}
		}

		if len(infos) != 2 {
			t.Errorf("got %v, want 2 infos", infos)
		}
	})
}

// putBody stores a body under a name with the present day, and returns the name. No row refers to
// the body.
func (b *bench) putBody(partition, name string) string {
	b.t.Helper()
	name = time.Now().UTC().Format(time.DateOnly) + "/" + partition + "/" + name
	if err := b.account.Blobs().Put(b.t.Context(), name, nil); err != nil {
		b.t.Fatal(err)
	}
	return name
}

// removeForgotten runs the search for forgotten bodies, and returns the time of the next search.
func (b *bench) removeForgotten(r *lane.Retention) time.Time {
	b.t.Helper()
	next, err := r.RemoveForgottenBodies(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return next
}

// countLists starts to count the requests that list blobs, and returns the counter.
func (b *bench) countLists() (lists *int) {
	lists = new(int)
	b.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "List" {
			*lists++
		}
		return storagetest.Fault{}
	})

	return lists
}

func TestForgotten_ListsADayOnce(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const bodies = 4500
		for i := range bodies {
			name := b.putBody(fmt.Sprintf("1.%d", i%3), fmt.Sprint(i))
			if i > 0 {
				if err := b.account.Blobs().Mark(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}

		lists := b.countLists()
		time.Sleep(3 * oneDay)
		var processes sync.WaitGroup
		for range 3 {
			processes.Go(func() {
				r := b.newRetention(b.store)
				for range 24 {
					b.removeForgotten(r)
					time.Sleep(time.Hour)
				}
			})
		}

		processes.Wait()

		// One request finds the first day, five list its bodies, and two list the two days after
		// the first day.
		if *lists > 8 {
			t.Errorf("listed %d bodies with %d requests, want at most 8 requests", bodies, *lists)
		}

		if all := b.countBlobs(); all != bodies-1 {
			t.Errorf("%d of %d bodies are left, want %d: all except the forgotten one", all,
				bodies, bodies-1)
		}
	})
}

// countBlobs returns the number of all blobs. It reads all pages of their list.
func (b *bench) countBlobs() (n int) {
	b.t.Helper()
	for marker := ""; ; {
		page, err := b.account.Blobs().List(b.t.Context(), "", marker)
		if err != nil {
			b.t.Fatal(err)
		}

		n += len(page.Infos)
		if marker = page.Next; marker == "" {
			return n
		}
	}
}

func TestForgotten_CatchesUp(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		r := b.newRetention(b.faultless)
		b.removeForgotten(r)

		for i := range 20 { // on these days no process searches
			b.putBody("1.0", fmt.Sprint(i))
			time.Sleep(oneDay)
		}

		if next := b.removeForgotten(r); !next.Equal(
			time.Now().UTC().Truncate(oneDay).Add(oneDay)) {
			t.Errorf("next at %s, want the next day", next)
		}

		if n := len(b.blobNames()); n != 1 {
			t.Errorf("%d bodies are left, want 1: yesterday's", n)
		}

		b.putBody("1.0", "today")
		time.Sleep(4 * oneDay)
		if b.removeForgotten(r); len(b.blobNames()) != 0 {
			t.Errorf("left: %v, want none", b.blobNames())
		}
	})
}

// To check the unmarked bodies of a day, the search reads those messages of the log that were
// accepted around that day. Before it removes a forgotten body, it reads the whole log.
func TestForgotten_ReadsTheDaysPartOfTheLog(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const days, perDay = 20, 1000
		used := map[int]string{}
		forgotten, seq := 0, int64(0)
		for day := range days {
			if day >= 3 {
				used[day] = b.putBody("1.0", fmt.Sprint("used", day))
				b.putBody("1.0", fmt.Sprint("forgotten", day))
				forgotten++
			}

			for range perDay / 100 {
				var ops []storage.Op
				for range 100 {
					seq++
					v := map[string]any{"Stage": "queued", "Held": true,
						"AcceptedAt": time.Now().UTC(), "Key": "k"}
					if seq%perDay == 700 && used[day] != "" {
						v["Blob"] = used[day]
					}

					ops = append(ops,
						storage.Op{Kind: storage.Insert, Key: "m_" + lane.OrderPos(seq), Values: v})
				}

				if _, err := b.account.Table().Transact(t.Context(), "1.0", ops); err != nil {
					t.Fatal(err)
				}

				time.Sleep(oneDay / 10)
			}

			if day == 1 {
				// Without this earlier search, the search below would read the whole log for each
				// day.
				b.removeForgotten(b.newRetention(b.faultless))
			}
		}

		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!head",
				Values: map[string]any{"Next": seq + 1}}}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * oneDay)
		table := &distantTable{Table: b.account.Table()}
		store := *b.faultless
		store.Table = table
		b.removeForgotten(b.newRetention(&store))
		if n := table.operations.Load(); n > 17*(1+1+8+6+days)+4 {
			t.Errorf("%d calls of the table for 17 days, want at most 16 a day and %d for the whole log, and 4", n, days)
		}

		var names []string
		for _, info := range b.blobInfos() {
			if names = append(names, info.Name); !info.Marked {
				t.Errorf("%s is not marked, want it marked as referred to", info.Name)
			}
		}

		if len(names) != len(used) || strings.Contains(strings.Join(names, " "), "forgotten") {
			t.Errorf("the bodies %v are left, want %d and none with \"forgotten\" in its name",
				names, len(used))
		}
	})
}

// The clock of a receiver is wrong by days, and bodies in use are not marked: that of its own
// message, and that of another receiver's message. The search removes none of them.
func TestForgotten_AReceiversClockIsWrong(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const messages, own, behindSlow, inBehindFast = 5000, 2, 1000, 4000
		began := time.Now().UTC()
		used := map[int]string{own: b.putBody("1.0", "own"), behindSlow: b.putBody("1.0", "slow"),
			inBehindFast: b.putBody("1.0", "fast")}
		forgotten := b.putBody("1.0", "forgotten")
		var ops []storage.Op
		for seq := 1; seq <= messages; seq++ {
			at := began.Add(time.Hour)
			switch {
			case seq == own, seq > 1400 && seq < 2600: // a clock that is slow
				at = began.Add(-5 * oneDay)
			case seq > 2600 && seq < inBehindFast: // a clock that is fast
				at = began.Add(5 * oneDay)
			}

			v := map[string]any{"Stage": "delivered", "AcceptedAt": at, "Key": "k"}
			if used[seq] != "" {
				v["Blob"] = used[seq]
			}

			ops = append(ops, storage.Op{Kind: storage.Insert,
				Key: "m_" + lane.OrderPos(int64(seq)), Values: v})
		}

		for chunk := range slices.Chunk(ops, storage.MaxOps) {
			b.transact(chunk...)
		}

		b.transact(storage.Op{Kind: storage.Merge, Key: "!head",
			Values: map[string]any{"Next": int64(messages + 1)}})

		r := b.newRetention(b.store)
		row := storage.Op{Kind: storage.Insert, Key: "forgotten", Values: map[string]any{
			"Since": began.AddDate(0, 0, -9).Format(time.DateOnly),
			"Day":   began.AddDate(0, 0, -1).Format(time.DateOnly)}}
		if _, err := b.account.Table().Transact(t.Context(), "meta", []storage.Op{row}); err !=
			nil {
			t.Fatal(err)
		}

		time.Sleep(3 * oneDay)
		b.removeForgotten(r)
		left := map[string]bool{}
		for _, info := range b.blobInfos() {
			left[info.Name] = true
		}

		for seq, name := range used {
			if !left[name] {
				t.Errorf("the body of message %d was removed, want it kept", seq)
			}
		}

		if left[forgotten] {
			t.Error("the forgotten body is left, want it removed")
		}
	})
}

// If storage refuses to remove a forgotten body, the other forgotten bodies are removed. Each day
// the search tries to remove the refused body again.
func TestForgotten_ABodyThatStays(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		stuck := b.putBody("1.0", "a")
		b.putBody("1.0", "b")
		b.putBody("1.1", "c")
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Delete" && c.Key == stuck {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "blob delete", Kind: storage.Conflict, Index: -1,
						Err: errors.New("409 SnapshotsPresent")}}
			}
			return storagetest.Fault{}
		})

		r, refused := b.newRetention(b.store), 0
		r.OnRemoved = func(_, n int) { refused += n }
		for range 6 {
			b.removeForgotten(r)
			time.Sleep(oneDay)
		}

		if names := b.blobNames(); !slices.Equal(names, []string{stuck}) || refused != 4 {
			t.Errorf("left %v, refused %d times in 4 days, want the stuck blob and 4",
				names, refused)
		}

		b.faults.Set(nil)

		if b.removeForgotten(r); len(b.blobNames()) != 0 {
			t.Errorf("the bodies %v are left after storage has allowed the removal, want none",
				b.blobNames())
		}
	})
}

// A search that is cut off stays reserved for its process for ten minutes. After that, another
// process continues the search.
func TestForgotten_CutOff(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for i := range 3000 {
			b.putBody("1.0", fmt.Sprintf("%04d", i))
		}

		time.Sleep(3 * oneDay)
		ctx, cancel := context.WithCancel(t.Context())
		deleted := 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "blobs" && c.Op == "Delete" {
				if deleted++; deleted == 1500 {
					cancel()
				}
			}
			return storagetest.Fault{}
		})

		if _, err := b.newRetention(b.store).RemoveForgottenBodies(ctx); err == nil {
			t.Error("got no error from a search that was cut off, want one")
		}

		left := b.countBlobs()
		r := b.newRetention(b.faultless)
		if next := b.removeForgotten(r); left == 0 || b.countBlobs() != left ||
			time.Until(next) > 10*time.Minute {
			t.Errorf("%d of %d bodies are left, next search in %s; want all left, and the next within 10m: the "+
				"process that was cut off still has the search for itself", b.countBlobs(), left,
				time.Until(next))
		}

		time.Sleep(10 * time.Minute)
		if b.removeForgotten(r); b.countBlobs() != 0 {
			t.Errorf("%d bodies are left, want 0", b.countBlobs())
		}
	})
}

// The search keeps an edited body, even if its message was accepted long before the edit.
func TestForgotten_EditOfAnOldMessage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		w := b.raiseFence()
		id := b.appendDead(w, "a", "x")
		b.removeForgotten(b.newRetention(b.faultless))
		time.Sleep(20 * oneDay)
		if _, err := b.store.Requests().Replay(t.Context(), id, withBody(newNoise(100<<10, 1))); err != nil {
			t.Fatal(err)
		}

		b.grantReplays(w)

		for range 5 {
			b.removeForgotten(b.newRetention(b.faultless))
			time.Sleep(oneDay)
		}

		if m, err := b.store.Messages().LoadEditedMessage(t.Context(), id); err != nil ||
			len(m.Body) == 0 {
			t.Errorf("got a body of %d bytes and %v, want a longer one and no error",
				len(m.Body), err)
		}

		if infos := b.blobInfos(); len(infos) != 1 || !infos[0].Marked {
			t.Errorf("got the bodies %+v, want one, and marked", infos)
		}
	})
}
