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

// logged has a process log to memory.
func logged(b *bytes.Buffer) func(*drain.Config) {
	return func(cfg *drain.Config) {
		cfg.Log = slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

func TestDrainer_Logs(t *testing.T) {
	t.Parallel()
	t.Run("TheIDThatUsersKnow", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.moody("x")
			id := w.post("a", "x")
			first := weir.ID{Epoch: 7, Lane: 2, Seq: 12, Nonce: id.Nonce} // it was moved here from there
			if _, err := w.account.Table().Transact(t.Context(), "1.0", []storage.Op{{
				Kind: storage.Merge, Key: "m_" + lane.OrderPos(id.Seq),
				Values: map[string]any{"Origin": first.String()}}}); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			p := w.start(logged(&log))
			p.Wake(0)
			w.settled(time.Minute)
			w.replay(id, lane.ReplayOptions{})
			p.Wake(0)
			time.Sleep(time.Minute)
			p.close(t)
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "message_id") &&
					!strings.Contains(line, `"message_id":"`+first.String()+`"`) {
					t.Errorf("it is %s to users, and in the log\n%s", first, line)
				}
			}
			for _, msg := range []string{"drain: attempt", "drain: replay asked"} {
				if !strings.Contains(log.String(), msg) {
					t.Errorf("no %q in\n%s", msg, &log)
				}
			}
		})
	})
	t.Run("OneLineAMessage", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
				status := map[string]int{"good": 200, "bad": 422, "second try": 200}[string(d.Message.Body)]
				if string(d.Message.Body) == "second try" && d.Attempt == 1 {
					status = 500
				}
				return takes(10*time.Millisecond, status)(ctx, d)
			})
			want := map[string]int{}
			for i := range 40 {
				want[w.post(strconv.Itoa(i%7), []string{"good", "bad", "good", "second try"}[i%4]).String()] = 1
			}
			var log bytes.Buffer
			p := w.start(func(cfg *drain.Config) { cfg.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
			p.Wake(0)
			w.settled(time.Minute)
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
					t.Errorf("a line that is of no message: %s", line)
				}
				got[read.ID]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %d lines of %d messages, want one of each of %d:\n%s",
					strings.Count(log.String(), "\n"), len(got), len(want), &log)
			}
		})
	})
	t.Run("WhatWasSuperseded", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			old := w.edit("a", "1")
			w.edit("a", "2")
			var log bytes.Buffer
			p := w.start(logged(&log))
			p.Wake(0)
			w.settled(time.Minute)
			p.close(t)
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "drain: superseded") &&
					strings.Contains(line, `"message_id":"`+old.String()+`"`) {
					return
				}
			}
			t.Errorf("%s is not told of in\n%s", old, &log)
		})
	})
	t.Run("WhereADeliveryPanicked", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(faulty)
			w.post("a", "x")
			var log bytes.Buffer
			p := w.start(logged(&log))
			p.Wake(0)
			w.settled(time.Minute)
			p.close(t)
			if !strings.Contains(log.String(), "drain_test.faulty") {
				t.Errorf("the log does not say where:\n%s", &log)
			}
		})
	})
}

func faulty(context.Context, weir.Delivery) weir.Result { panic("boom") }
