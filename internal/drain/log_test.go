package drain_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// logged has a process log to memory.
func logged(b *bytes.Buffer) func(*drain.Config) {
	return func(cfg *drain.Config) { cfg.Log = slog.New(slog.NewJSONHandler(b, nil)) }
}

func TestDrainer_Logs(t *testing.T) {
	t.Parallel()
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
