package batch_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/wire"
)

// The parts of one key are appended many at a time, as those of many keys are.
func TestBatch_FilesPartsOfOneKeyTogether(t *testing.T) {
	const parts, perTransaction = 2000, 50 * time.Millisecond
	for name, c := range map[string]struct {
		keys int
		most time.Duration
	}{
		"OneKey":   {1, 8 * time.Second},
		"TwoKeys":  {2, 8 * time.Second},
		"ManyKeys": {500, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startSlow(0, perTransaction)
				defer p.stop()
				var keys []string
				for n := range c.keys {
					keys = append(keys, fmt.Sprint("/", n))
				}

				began := time.Now()
				b := p.awaitFinal(p.accept(batch.Spec{}, newFeed(parts, keys...)).ID)
				took := time.Since(began)
				t.Logf("%d parts a second", int(parts/took.Seconds()))
				if b.State != wire.BatchFiled || took > c.most {
					t.Errorf("got %s after %s, want it filed within %s", b.State, took, c.most)
				}

				w.checkEachOnce(parts, keys...)
			})
		})
	}
}
