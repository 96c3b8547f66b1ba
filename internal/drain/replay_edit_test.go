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
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "good" && d.Message.ContentType == "text/xml" &&
				d.Message.Version == "4" {
				return answerAfter(time.Millisecond, 200)(ctx, d)
			}
			return newAnswer(422)
		})

		p := w.start()
		id := w.post("a", "bad", func(m *weir.Message) {
			m.Version, m.Shown = "3", map[string]string{"title": "first"}
		})
		p.Wake(0)
		w.waitUntilIdle()
		if got := w.status(id).Message.Shown["title"]; got != "first" {
			t.Errorf("the message shows %q, want first", got)
		}

		edit := func(body []byte, note string) {
			t.Helper()
			w.replay(
				id,
				lane.ReplayOptions{Edit: &lane.Edit{Body: body, ContentType: "text/xml",
					Version: "4", Note: note, Shown: map[string]string{"title": note}}},
			)

			p.Wake(0)
			time.Sleep(time.Second)
		}

		if _, err := w.store.Messages().LoadEditedMessage(t.Context(), id); weir.KindOf(err) !=
			weir.NotFound {
			t.Errorf("edited already: %v, want an error of kind NotFound", err)
		}

		edit(noise(1, 100<<10), "large")
		edit(noise(2, 100<<10), "large too")

		if got, err := w.store.Messages().LoadEditedMessage(t.Context(), id); err != nil ||
			!bytes.Equal(got.Body, noise(2, 100<<10)) ||
			got.Size != 100<<10 {
			t.Errorf("got another body of %d bytes, %v, want the edited one of 100 KiB",
				len(got.Body), err)
		}

		if n := w.countBlobs(); n != 1 {
			t.Errorf("%d blobs, want that of the last edit", n)
		}

		edit([]byte("good"), "a title")
		st := w.status(id)
		if st.Message.Edition != 3 || st.Stage != weir.Delivered || st.EditNote != "a title" ||
			st.EditedAt.IsZero() ||
			st.Message.Replays != 3 ||
			st.Message.Version != "4" {
			t.Errorf("got %+v, want Edition 3, Stage delivered, EditNote \"a title\", an EditedAt, Replays 3 and "+
				"Version 4", st)
		}

		if got := st.Message.Shown["title"]; got != "a title" {
			t.Errorf("the edited message shows %q, want that of its edit", got)
		}

		edited, err := w.store.Messages().LoadEditedMessage(t.Context(), id)
		if err != nil || string(edited.Body) != "good" || edited.ContentType != "text/xml" {
			t.Errorf("got %+v, %v, want Body good, ContentType text/xml and no error", edited, err)
		}

		accepted, err := w.store.Messages().LoadMessage(t.Context(), id)
		if err != nil || string(accepted.Body) != "bad" ||
			accepted.ContentType != "application/xml" ||
			accepted.Version != "3" ||
			accepted.Size != 3 ||
			accepted.Edition != 0 {
			t.Errorf("got %+v, %v, want Body bad, ContentType application/xml, Version 3, Size 3, Edition 0 and no "+
				"error", accepted, err)
		}

		if n := w.countBlobs(); n != 0 {
			t.Errorf("%d blobs are left, want 0", n)
		}

		w.expectCounts(lane.Counts{Delivered: 1}, id)
	})
}

// A body that an edit replaces is kept until the edit is committed. If the holder dies before that
// commit, the message's row still names the old body.
func TestDrainer_ReplayEditedCrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("bad", newNoise(100<<10, 1))
		p := w.start()
		id := w.post("a", "bad")
		p.Wake(0)
		w.waitUntilIdle()
		edit := func(seed int) {
			w.replay(
				id,
				lane.ReplayOptions{Edit: &lane.Edit{Body: []byte(newNoise(100<<10, seed)),
					ContentType: "text/xml"}},
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

		if got, err := w.store.Messages().LoadEditedMessage(t.Context(), id); err != nil ||
			string(got.Body) != newNoise(100<<10, 1) {
			t.Errorf("got another body of %d bytes, %v, want the edited one of 100 KiB",
				len(got.Body), err)
		}
	})
}

func (w *world) countBlobs() int {
	w.t.Helper()
	page, err := w.account.Blobs().List(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return len(page.Infos)
}

// A replay is granted exactly once, even if its commit fails and the holder dies. In the case Lost
// the commit is not written. In the case AnswerLost the commit is written, but storage's answer is
// lost.
func TestDrainer_ReplayCrash(t *testing.T) {
	faults := map[string]storagetest.FaultKind{"Lost": storagetest.FailBefore,
		"AnswerLost": storagetest.FailAfter}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				m := w.answerByBody("1")
				a, b := w.start(), w.start()
				first := w.post("a", "1")
				a.Wake(0)
				w.waitUntilIdle()
				m.setStatus("1", 200)
				m.setStatus("2", 503)
				second := w.post("a", "2")
				a.Wake(0)
				time.Sleep(time.Second) // the CMS is unavailable for message 2, so the lane pauses
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
				m.setStatus("2", 200)
				b.Wake(0)
				w.waitUntilEmpty(5 * time.Minute)
				if got := w.listDelivered("a"); !slices.Equal(got, []string{"1", "2"}) {
					t.Errorf("delivered %v, want [1 2]", got)
				}

				if st := w.status(first); st.Message.Replays != 1 {
					t.Errorf("got %+v, want Replays 1", st)
				}

				w.expectCounts(lane.Counts{Delivered: 2}, first, second)
			})
		})
	}
}
