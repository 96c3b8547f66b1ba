package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
)

// A process reads tail while another holder has the lane. In the first case the holder hands the
// lane over before the process raises the fence. Then the process must count no crash. Otherwise
// the process would wait for the settle time, although the CMS works on no request. In the second
// case the holder commits, and then crashes. Then the process must count a crash.
func TestLaneWorker_HandOverBetweenReadAndFence(t *testing.T) {
	for name, isOpen := range map[string]bool{"handed over": false,
		"committed, then crashed": true} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				seen, err := p.store.ReadControl(t.Context(), 0)
				if err != nil || !seen.Tail.IsOpen {
					t.Fatalf("ReadControl = %+v, %v; want a tail that the holder has open",
						seen.Tail, err)
				}

				_, err = p.store.RaiseFence(t.Context(), 0, "later", seen.Tail,
					func(tail *lane.Tail) { tail.IsOpen = isOpen })
				if err != nil {
					t.Fatal(err)
				}

				cfg := Config{Store: p.store, Now: time.Now, Settle: 3 * time.Second}
				w := newLaneWorker(&Drainer{Config: cfg, outlook: newOutlook(Backoff{}),
					memory: newLaneMemory(0)}, 0)
				writer, former, err := w.raiseFence(t.Context(), seen.Tail)
				if err != nil {
					t.Fatal(err)
				}

				tail, wantCrashes := writer.Tail(), map[bool]int64{true: 1}[isOpen]
				if former.hasCrashed != isOpen || tail.Crashes != wantCrashes ||
					tail.SettleUntil.IsZero() == isOpen ||
					former.nonce != "later" {
					t.Errorf("the former holder has crashed: %v, nonce %q, %d crashes, settles until %v; want %v, "+
						"later, %d, and a time only after a crash", former.hasCrashed, former.nonce,
						tail.Crashes,
						tail.SettleUntil, isOpen, wantCrashes)
				}
			})
		})
	}
}
