package drain_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestDrainer_ReplayEdited(t *testing.T) {
	noise := func(seed uint64, size int) []byte {
		source, b := rand.New(rand.NewPCG(seed, 1)), make([]byte, size)
		for i := range b {
			b[i] = byte(source.Uint32())
		}
		return b
	}

	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "good" && d.Message.ContentType == "text/xml" && d.Message.Version == "4" {
				return takes(time.Millisecond, 200)(ctx, d)
			}
			return answer(422)
		})
		p := w.start()
		id := w.post("a", "bad", func(m *weir.Message) { m.Version = "3" })
		p.Wake(0)
		w.rests()
		edit := func(body []byte, note string) {
			t.Helper()
			w.replay(
				id,
				lane.ReplayOptions{Edit: &lane.Edit{Body: body, ContentType: "text/xml", Version: "4", Note: note}},
			)
			p.Wake(0)
			time.Sleep(time.Second)
		}
		if _, err := w.store.LoadEditedMessage(t.Context(), id); weir.KindOf(err) != weir.NotFound {
			t.Errorf("edited already: %v", err)
		}
		edit(noise(1, 100<<10), "large")
		edit(noise(2, 100<<10), "large too")
		if got, err := w.store.LoadEditedMessage(t.Context(), id); err != nil ||
			!bytes.Equal(got.Body, noise(2, 100<<10)) ||
			got.Size != 100<<10 {
			t.Errorf("%d bytes, %v", len(got.Body), err)
		}
		if n := w.blobs(); n != 1 {
			t.Errorf("%d blobs, want that of the last edit", n)
		}
		edit([]byte("good"), "a title")
		st := w.status(id)
		if st.Message.Edition != 3 || st.Stage != weir.Delivered || st.EditNote != "a title" ||
			st.EditedAt.IsZero() ||
			st.Replays != 3 ||
			st.Message.Version != "4" {
			t.Errorf("%+v", st)
		}
		edited, err := w.store.LoadEditedMessage(t.Context(), id)
		if err != nil || string(edited.Body) != "good" || edited.ContentType != "text/xml" {
			t.Errorf("%+v, %v", edited, err)
		}
		accepted, err := w.store.LoadMessage(t.Context(), id)
		if err != nil || string(accepted.Body) != "bad" || accepted.ContentType != "application/xml" ||
			accepted.Version != "3" ||
			accepted.Size != 3 ||
			accepted.Edition != 0 {
			t.Errorf("%+v, %v", accepted, err)
		}
		if n := w.blobs(); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		w.balances(lane.Counts{Delivered: 1}, id)
	})
}

// A body that an edit replaces stays until that edit is known to be written: where the holder
// dies before, the message's row still names it.
func TestDrainer_ReplayEditedCrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("bad", noise(100<<10, 1))
		p := w.start()
		id := w.post("a", "bad")
		p.Wake(0)
		w.rests()
		edit := func(seed int) {
			w.replay(
				id,
				lane.ReplayOptions{Edit: &lane.Edit{Body: []byte(noise(100<<10, seed)), ContentType: "text/xml"}},
			)
			p.Wake(0)
			time.Sleep(time.Second)
		}
		edit(1)
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isTail(c) {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		edit(2)
		p.kill()
		if got, err := w.store.LoadEditedMessage(t.Context(), id); err != nil ||
			string(got.Body) != noise(100<<10, 1) {
			t.Errorf("%d bytes, %v", len(got.Body), err)
		}
	})
}

func (w *world) blobs() int {
	w.t.Helper()
	page, err := w.account.Blobs().List(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return len(page.Infos)
}

// Whatever becomes of the commit that grants a replay, it is granted once.
func TestDrainer_ReplayCrash(t *testing.T) {
	faults := map[string]storagetest.FaultKind{"Lost": storagetest.FailBefore, "AnswerLost": storagetest.FailAfter}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				m := w.moody("1")
				a, b := w.start(), w.start()
				first := w.post("a", "1")
				a.Wake(0)
				w.rests()
				m.set("1", 200)
				m.set("2", 503)
				second := w.post("a", "2")
				a.Wake(0)
				time.Sleep(time.Second) // it waits, and the lane pauses
				a.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if isTail(c) &&
						slices.ContainsFunc(
							c.Ops,
							func(op storage.Op) bool { return strings.HasPrefix(op.Key, "x_") },
						) {
						go a.kill()
						return storagetest.Fault{Kind: fault}
					}
					return storagetest.Fault{}
				})
				w.replay(first, lane.ReplayOptions{})
				a.Wake(0)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				m.set("2", 200)
				b.Wake(0)
				w.settled(5 * time.Minute)
				if got := w.delivered("a"); !slices.Equal(got, []string{"1", "2"}) {
					t.Errorf("delivered %v", got)
				}
				if st := w.status(first); st.Replays != 1 {
					t.Errorf("%+v", st)
				}
				w.balances(lane.Counts{Delivered: 2}, first, second)
			})
		})
	}
}
