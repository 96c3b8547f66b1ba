package drain_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage/storagetest"
	"weir/internal/storage/timelimit"
)

// In each case one call of the holder to storage hangs. The next message must still be sent within
// ten seconds.
func TestDrainer_HungStorageCall(t *testing.T) {
	for name, hangs := range map[string]func(storagetest.Call) bool{
		"ControlRows": func(c storagetest.Call) bool { return c.Op == "Range" && c.Key == "!head" },
		"Log": func(c storagetest.Call) bool {
			return c.Op == "Range" &&
				strings.HasPrefix(c.Key, "m_")
		},
		"Commit":      isTail,
		"Renewal":     func(c storagetest.Call) bool { return c.Op == "Renew" },
		"Acquisition": func(c storagetest.Call) bool { return c.Op == "Acquire" },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const bound = 10 * time.Second
				p := w.start(func(c *drain.Config) {
					c.Store.Table, c.Leases = timelimit.Table(c.Store.Table),
						timelimit.Leases(c.Leases)
				})

				other := w.start()
				w.post("a", "1")
				p.Wake(0)
				time.Sleep(300 * time.Millisecond)
				p.faults.Once(hangs, storagetest.Fault{Kind: storagetest.Hang})
				time.Sleep(time.Second)
				posted := time.Now()
				w.post("b", "2")
				p.Wake(0)
				other.Wake(0)
				for len(w.listDelivered("b")) == 0 && time.Since(posted) < 5*time.Minute {
					time.Sleep(10 * time.Millisecond)
				}

				if took := time.Since(posted); took > bound {
					t.Errorf("sent %s after it was filed, want at most %s", took, bound)
				}
			})
		})
	}
}
