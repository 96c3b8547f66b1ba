package drain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// withLog makes a process write all its log lines to b.
func withLog(b *bytes.Buffer) func(*drain.Config) {
	return func(cfg *drain.Config) {
		cfg.Log = slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

func TestDrainer_Logs_TheIDThatUsersKnow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("x")
		id := w.post("a", "x")

		// the id that the upstream got
		first := weir.ID{Epoch: 7, Lane: 2, Seq: 12, Nonce: id.Nonce}
		if _, err := w.account.Table().Transact(t.Context(), "1.0", []storage.Op{{
			Kind: storage.Merge, Key: "m_" + lane.OrderPos(id.Seq),
			Values: map[string]any{"Origin": first.String()}}}); err != nil {
			t.Fatal(err)
		}

		var log bytes.Buffer
		p := w.start(withLog(&log))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Minute)
		p.close(t)

		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "message_id") &&
				!strings.Contains(line, `"message_id":"`+first.String()+`"`) {
				t.Errorf("got the line\n%s\nwant the id that users know, %s", line, first)
			}
		}

		for _, msg := range []string{"drain: attempt", "drain: replay asked"} {
			if !strings.Contains(log.String(), msg) {
				t.Errorf("got the log\n%s\nwant %q in it", &log, msg)
			}
		}
	})
}

// Operators must see an attempt that takes long, in the log and in tail, as long as it lasts.
// Without that, a lane whose CMS hangs seems to do nothing until the timeout.
func TestDrainer_ShowsAnAttemptUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(20*time.Second, 200))
		id := w.post("a", "slow")
		var log bytes.Buffer
		p := w.start(withLog(&log))
		began := time.Now()
		p.Wake(0)
		time.Sleep(4 * time.Second)

		if tail := w.control().Tail; tail.AttemptingID != "" {
			t.Errorf("after 4s: got %+v, want no attempt in tail yet, because each costs a commit",
				tail.HolderReport)
		}

		time.Sleep(2 * time.Second)

		if tail := w.control().Tail; tail.AttemptingID != id.String() ||
			tail.AttemptingSince.Sub(began) > time.Second ||
			!tail.LastDeliveredAt.IsZero() {
			t.Errorf("after 6s: got %+v, want the attempt of %s since %s",
				tail.HolderReport, id, began)
		}

		w.waitUntilEmpty(time.Minute)
		time.Sleep(time.Second)

		if tail := w.control().Tail; tail.AttemptingID != "" || !tail.AttemptingSince.IsZero() ||
			tail.LastDeliveredAt.Sub(began) < 20*time.Second {
			t.Errorf("after the answer: got %+v, want the time of the delivery, and no attempt",
				tail.HolderReport)
		}

		p.close(t)
		if !strings.Contains(log.String(), "drain: attempt under way") {
			t.Errorf("got the log\n%s\nwant a line about the attempt under way", &log)
		}
	})
}

func TestDrainer_Logs_OneLineAMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			status := map[string]int{"good": 200, "bad": 422, "second try": 200}[string(d.Message.Body)]
			if string(d.Message.Body) == "second try" && d.Attempt == 1 {
				status = 500
			}
			return answerAfter(10*time.Millisecond, status)(ctx, d)
		})

		want := map[string]int{}
		for i := range 40 {
			lines := []int{1, 1, 1, 2}[i%4] // one for the end, and one for each failed attempt
			want[w.post(strconv.Itoa(i%7), []string{"good", "bad", "good", "second try"}[i%4]).String()] = lines
		}

		var log bytes.Buffer
		p := w.start(func(cfg *drain.Config) { cfg.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		p.close(t)
		got := map[string]int{}
		for line := range strings.Lines(log.String()) {
			var read struct {
				Msg, Stage string
				ID         string `json:"message_id"`
			}
			if err := json.Unmarshal([]byte(line), &read); err != nil {
				t.Fatal(err)
			}

			if read.ID == "" {
				t.Errorf("got the line %s, want a message_id in it", line)
			}

			got[read.ID]++
		}

		if !maps.Equal(got, want) {
			t.Errorf("got %d lines of %d messages, want one of each of %d, and one for each failed attempt:\n%s",
				strings.Count(log.String(), "\n"), len(got), len(want), &log)
		}
	})
}

func TestDrainer_Logs_SupersededMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		old := w.postVersion("a", "1")
		w.postVersion("a", "2")
		var log bytes.Buffer
		p := w.start(withLog(&log))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		p.close(t)

		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "drain: superseded") &&
				strings.Contains(line, `"message_id":"`+old.String()+`"`) {
				return
			}
		}

		t.Errorf("got the log\n%s\nwant %s superseded in it", &log, old)
	})
}

func TestDrainer_Logs_WhereADeliveryPanicked(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(panicInSend)
		w.post("a", "x")
		var log bytes.Buffer
		p := w.start(withLog(&log))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		p.close(t)
		if !strings.Contains(log.String(), "drain_test.panicInSend") {
			t.Errorf("got the log\n%s\nwant the function that panicked in it", &log)
		}
	})
}

func panicInSend(context.Context, weir.Delivery) weir.Result { panic("boom") }
