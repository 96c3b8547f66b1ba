//go:build !race || long

package drain_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// answerByKey rejects messages of the key "dead", fails for those of "failing", and takes all
// others.
func answerByKey(_ context.Context, d weir.Delivery) weir.Result {
	switch {
	case strings.HasPrefix(d.Message.Key, "failing"):
		return newAnswer(500)
	case d.Message.Key == "dead" && string(d.Message.Body) == "1":
		return newAnswer(400)
	}
	return newAnswer(200)
}

// manyAttempts keeps the messages of the key "failing" alive.
func manyAttempts(c *drain.Config) { c.Attempts = 50 }

// fillWithAllKinds fills the lane so that it has rows of most kinds, and a drained log.
func (w *world) fillWithAllKinds() {
	w.cms.setAnswer(answerByKey)
	p := w.start(manyAttempts)
	for i := range 12 {
		w.post(fmt.Sprint("packed", i), "x") // one packed row
	}

	w.post("dead", "1")
	w.post("dead", "2")
	w.post("failing", "1")
	w.post("failing", "2")
	w.post("versioned", "1", func(m *weir.Message) { m.Version, m.Supersede = "1", true })
	w.post("later", "1", func(m *weir.Message) { m.DueAt = time.Now().Add(10 * time.Minute) })
	p.Wake(0)
	time.Sleep(4 * time.Second)
	p.close(w.t)
	w.post("open", "1")
	w.post("open", "2")
}

// rowsOfLane returns the rows of the lane, except its control rows and messages that are like
// others.
func (w *world) rowsOfLane() []storage.Row {
	w.t.Helper()
	page, err := w.account.Table().Range(w.t.Context(),
		storage.Query{Partition: w.store.Partition(0), From: "A"})
	if err != nil || page.More {
		w.t.Fatalf("got more rows: %v (%v), want one page", page.More, err)
	}

	return slices.DeleteFunc(page.Rows, func(r storage.Row) bool {
		// like packed0
		return strings.HasPrefix(r.Key, "m_") &&
			strings.HasPrefix(r.Values["Key"].(string), "packed1")
	})
}

// damage is a change of a row that Weir never makes.
type damage struct {
	name string
	ops  []storage.Op
}

// damagesOf returns the damages of a row: other keys, and for each column no value or a value of
// another kind.
func damagesOf(r storage.Row) (all []damage) {
	prefix, _, _ := strings.Cut(r.Key, "_")
	for _, key := range []string{prefix + "_junk", r.Key + "junk", r.Key[:len(r.Key)-1] + "-"} {
		all = append(all, damage{r.Key + " is " + key,
			[]storage.Op{{Kind: storage.Delete, Key: r.Key},
				{Kind: storage.Insert, Key: key, Values: r.Values}}})
	}

	for _, column := range slices.Sorted(maps.Keys(r.Values)) {
		for _, value := range []any{nil, []byte("{junk"), int64(-7)} {
			values := maps.Clone(r.Values)
			if values[column] = value; value == nil {
				delete(values, column)
			}
			all = append(all, damage{fmt.Sprintf("%s has %s %v", r.Key, column, value),
				[]storage.Op{{Kind: storage.Replace, Key: r.Key, Values: values}}})
		}
	}

	return all
}

// listDamages returns all damages of the lane that fillWithAllKinds fills. The lane has the same
// rows each time.
func listDamages(t *testing.T) (all []damage) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fillWithAllKinds()
		kinds := map[string]bool{}
		for _, r := range w.rowsOfLane() {
			kinds[r.Key[:2]] = true
			all = append(all, damagesOf(r)...)
		}

		for _, kind := range []string{"b_", "d_", "k_", "l_", "m_", "r_", "s_", "x_"} {
			if !kinds[kind] {
				t.Errorf("the lane has the kinds %v, want %s among them", kinds, kind)
			}
		}
	})

	return all
}

// One row of the lane is damaged. Messages of other keys are delivered nevertheless. But if the
// damage took a row of the log away, the lane stands still, and its error names the message.
func TestDamagedRow_StopsNoOtherKey(t *testing.T) {
	for number, one := range listDamages(t) {
		t.Run(one.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.fillWithAllKinds()
				var same []damage
				for _, r := range w.rowsOfLane() {
					same = append(same, damagesOf(r)...)
				}

				w.transact(same[number].ops...)

				damages := &lane.Damages{}
				p := w.start(manyAttempts, func(c *drain.Config) { c.Store.Damages = damages })
				p.Wake(0)
				time.Sleep(time.Minute) // retries are due meanwhile
				w.post("good", "1")

				for end := time.Now().Add(2 * time.Minute); len(w.listDelivered("good")) ==
					0; time.Sleep(time.Second) {
					if strings.Contains(w.control().Tail.LastError, "of the log has no row") {
						return
					}

					if time.Now().After(end) {
						t.Fatalf(
							"the message of another key is not delivered; the lane's error is %q",
							w.control().Tail.LastError)
					}

					p.Wake(0)
				}
			})
		})
	}
}

// The row of an accepted message is gone. The lane stands still, and its error names the message: a
// holder passes over no accepted message. A row with a final stage in its place ends that.
func TestMissingRow_StopsTheLaneAndIsNamed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.post(fmt.Sprint("k", i), "x")
		}

		row := "m_" + lane.OrderPos(3)
		w.transact(storage.Op{Kind: storage.Delete, Key: row})
		p := w.start()
		p.Wake(0)
		time.Sleep(time.Minute)

		if got := w.control().Tail.LastError; !strings.Contains(got,
			"message 3 of the log has no row") {
			t.Errorf("the lane's error is %q, want it to name message 3", got)
		}

		if n := len(w.cms.listRequests()); n != 2 {
			t.Errorf("the CMS has got %d messages, want the two before the gap", n)
		}

		w.transact(storage.Op{Kind: storage.Insert, Key: row,
			Values: map[string]any{"Stage": "cancelled"}})
		w.expectDelivered(p, "k4", time.Minute)
	})
}

// transact writes rows of the lane, as a person does with a tool of the store.
func (w *world) transact(ops ...storage.Op) {
	w.t.Helper()
	if _, err := w.account.Table().Transact(w.t.Context(), w.store.Partition(0), ops); err != nil {
		w.t.Fatal(err)
	}
}
