package drain_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
)

// The code of functions/process calls Join in a loop, for each lane that Held returns. If Join
// returned at once during Close, the loop would run without a pause until the last write has ended.
func TestJoin_WaitsForADrainThatCloseEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		w.post("a", "x")
		p := w.start(withHost)
		p.Attend()
		p.Wake(0)
		time.Sleep(time.Second)
		closed := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			closed <- p.Close(ctx)
		}()

		synctest.Wait()
		if held := p.Held(); len(held) != 1 {
			t.Fatalf("got lanes %v held during the write, want lane 0", held)
		}

		began := time.Now()
		report := p.Join(t.Context(), 0)
		if held := p.Held(); len(held) != 0 || report.State != drain.Idle ||
			time.Since(began) < time.Second {
			t.Errorf("Join returned %+v after %s with lanes %v held, want Idle after the second that the write takes",
				report, time.Since(began), held)
		}

		if err := <-closed; err != nil {
			t.Error(err)
		}

		if report := p.Join(t.Context(), 1); report.State != drain.Idle {
			t.Errorf("got %+v from a lane without a drain, want Idle at once", report)
		}
	})
}
