package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// damageRow replaces columns of a row by bytes that Weir cannot read.
func (b *bench) damageRow(key string, columns ...string) {
	b.t.Helper()
	values := map[string]any{}
	for _, column := range columns {
		values[column] = []byte("{junk")
	}
	b.transact(storage.Op{Kind: storage.Merge, Key: key, Values: values})
}

func (b *bench) transact(ops ...storage.Op) {
	b.t.Helper()
	if _, err := b.account.Table().Transact(b.t.Context(), b.store.Partition(0), ops); err != nil {
		b.t.Fatal(err)
	}
}

// listDamaged returns the keys of the rows that FindDamaged finds.
func (b *bench) listDamaged() (keys []string) {
	b.t.Helper()
	found, err := b.store.FindDamaged(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}

	for _, d := range found {
		keys = append(keys, d.Key)
	}

	return keys
}

// The content of a packed row is damaged. Its messages still count as delivered, an erasure works,
// and retention removes them with the row.
func TestDamaged_PackedRow(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids, w := b.appendAndRaiseFence(20)
		b.commitDeliveries(w, 21, seqRange(1, 20)...)
		packed := "d_" + lane.OrderPos(20)
		b.damageRow(packed, "Messages")
		reported := 0
		b.store.Damages = &lane.Damages{OnFound: func() { reported++ }}

		for _, id := range []weir.ID{ids[0], ids[7], ids[19]} {
			st, err := b.store.Messages().Status(t.Context(), id)
			if err != nil || st.Stage != weir.Delivered {
				t.Errorf("message %d is %s (%v), want it delivered", id.Seq, st.Stage, err)
			}
		}

		if entries, _, err := b.store.ReadMany(t.Context(), 0, []int64{20, 1}); err != nil ||
			len(entries) != 2 ||
			entries[1].Stage != weir.Delivered {
			t.Errorf("ReadMany = %d messages, %v; want two that are delivered", len(entries), err)
		}

		if got := b.listDamaged(); !slices.Equal(got, []string{packed}) || reported != 1 {
			t.Errorf("got the damaged rows %v and %d reports, want %s once", got, reported, packed)
		}

		if _, err := b.store.Requests().Erase(t.Context(), ids[3]); err != nil {
			t.Errorf("Erase = %v, want no error", err)
		}

		row, err := b.account.Table().Get(t.Context(), b.store.Partition(0), packed)
		if err != nil || row.Values["Messages"] != nil {
			t.Errorf("after the erasure the packed row has %v (%v), want it without its content",
				row.Values, err)
		}

		r := b.newRetention(b.store)
		time.Sleep(oneDay)
		if _, err := r.RunLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if keys := b.listKeys(); !keys[packed] || !keys["m_"+lane.OrderPos(1)] {
			t.Error("retention has removed a message or the packed row before its time")
		}

		time.Sleep(9 * oneDay)
		if _, err := r.RunLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		for key := range b.listKeys() {
			if strings.HasPrefix(key, "m_") || strings.HasPrefix(key, "d_") {
				t.Errorf("%s is left after its retention, want it removed", key)
			}
		}
	})
}

// A row of the list of dead messages is gone, or its key is damaged. The holder can replay the
// message nevertheless.
func TestDamaged_ListOfDeadMessages(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		_, w := b.appendAndRaiseFence(1)
		b.commitFinal(w, 1, weir.Dead)
		b.transact(storage.Op{Kind: storage.Delete, Key: "x_" + lane.OrderPos(1)},
			storage.Op{Kind: storage.Insert, Key: "x_junk", Values: map[string]any{}})
		e, err := b.store.ReadMessage(t.Context(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}

		ch := &lane.Change{}
		ch.Replay(e, lane.Request{}, time.Now().UTC())
		tx := &lane.Transaction{}
		tx.TryAdd(ch)
		if err := w.Commit(t.Context(), tx); err != nil {
			t.Fatalf("Commit = %v, want no error", err)
		}

		st, err := b.store.ReadMessage(t.Context(), 0, 1)
		if err != nil || st.Stage != weir.Queued || w.Tail().Counts.Dead != 0 {
			t.Errorf("the message is %s (%v) and %d count as dead, want it queued and none",
				st.Stage, err, w.Tail().Counts.Dead)
		}

		if got := b.listDamaged(); !slices.Contains(got, "x_junk") {
			t.Errorf("got the damaged rows %v, want x_junk among them", got)
		}
	})
}

// Damaged attempts and shown values do not keep a message from being read.
func TestDamaged_ColumnsOfAMessage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids, _ := b.appendAndRaiseFence(3)
		b.damageRow("m_"+lane.OrderPos(2), "Attempts")
		b.transact(storage.Op{Kind: storage.Merge, Key: "m_" + lane.OrderPos(3),
			Values: map[string]any{"Shown": "{junk"}})
		b.transact(storage.Op{Kind: storage.Insert, Key: "m_" + lane.OrderPos(2) + "-",
			Values: map[string]any{}})
		entries, err := b.store.ReadLog(t.Context(), 0, 1, 3)
		if err != nil || len(entries) != 3 || entries[2].Message.ID != ids[2] {
			t.Fatalf("ReadLog = %d messages, %v; want three", len(entries), err)
		}

		if err := b.store.LoadBody(t.Context(), entries[1]); err != nil ||
			string(entries[1].Message.Body) != "1" {
			t.Errorf("got the body %q, %v; want 1", entries[1].Message.Body, err)
		}

		want := []string{"m_" + lane.OrderPos(2), "m_" + lane.OrderPos(2) + "-",
			"m_" + lane.OrderPos(3)}
		if got := b.listDamaged(); !slices.Equal(got, want) {
			t.Errorf("got the damaged rows %v, want %v", got, want)
		}
	})
}

// A key whose number is not written as Weir writes it names no message: a reader looks for the row
// by the key of the number, and does not find it. All such keys are damaged.
func TestDamaged_SpellingsOfKeys(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.appendAndRaiseFence(1)
		five, zero := lane.OrderPos(5), lane.OrderPos(0)
		var want []string
		for _, prefix := range []string{"d_", "m_", "x_"} {
			for _, number := range []string{zero, "5", "+5", "+" + five[1:], "-" + five[1:],
				"0" + five, five + " ", "5e0", "0x5", "9223372036854775808", "-9223372036854775808",
				""} {
				want = append(want, prefix+number)
			}
		}

		const at = "001767225600000000"
		for _, due := range []string{at[2:] + "_" + five, at + "_5", at + "_" + zero, at, "+" + at[1:] +
			"_" + five, "-9223372036854775808_" + five} {
			want = append(want, "s_"+due)
		}

		for _, key := range want {
			b.transact(storage.Op{Kind: storage.Insert, Key: key, Values: map[string]any{}})
		}

		slices.Sort(want)
		if got := b.listDamaged(); !slices.Equal(got, want) {
			t.Errorf("got the damaged rows\n%q, want\n%q", got, want)
		}

		entries, err := b.store.ReadLog(t.Context(), 0, 1, 9)
		if err != nil || len(entries) != 1 {
			t.Errorf("ReadLog = %d messages, %v; want one", len(entries), err)
		}
	})
}

// A whole page of the log has rows with damaged keys only. Retention goes on behind it.
func TestDamaged_AWholePage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		_, w := b.appendAndRaiseFence(3)
		b.commitDeliveries(w, 4, seqRange(1, 3)...)
		for i := range 1100 {
			key := fmt.Sprintf("m_%sx%04d", lane.OrderPos(0), i)
			b.transact(storage.Op{Kind: storage.Insert, Key: key, Values: map[string]any{"a": "b"}})
		}

		r := b.newRetention(b.store)
		time.Sleep(10 * oneDay)
		for range 3 {
			if _, err := r.RunLane(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}

		for i := range int64(3) {
			if key := "m_" + lane.OrderPos(i+1); b.listKeys()[key] {
				t.Errorf("%s is left after its retention, want it removed", key)
			}
		}
	})
}
