package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/storage"
)

// In some seeds a person has damaged the table: each lane has rows whose keys Weir cannot read,
// among the rows of messages, packed deliveries, due times, dead messages and events. All promises
// hold nevertheless: no reader stops at such a row, and each lane comes to rest.

// junk ends the keys of damaged rows.
const junk = "junk"

func (s *settings) drawDamages(d *dice) { s.isDamaged = d.drawChance("damaged rows", 0.15) }

// damageLanes adds the damaged rows during the time of faults.
func (w *world) damageLanes(ctx context.Context) {
	if !w.isDamaged {
		return
	}

	for number := range w.lanes {
		name := fmt.Sprint("damage ", number)
		at, seq := w.dice.drawBetween(name+" at", 0, w.trouble),
			1+w.dice.drawBelow(name+" behind", 20)
		w.upstream.Go(func() {
			time.Sleep(at)
			var ops []storage.Op
			for _, key := range []string{fmt.Sprintf("m_%019d-", seq), fmt.Sprintf("d_%019d-", seq),
				"n_!", "s_!", "x_!"} {
				ops = append(ops,
					storage.Op{Kind: storage.Insert, Key: key + junk, Values: map[string]any{}})
			}

			partition := w.check.store.Partition(number)
			if _, err := w.account.Table().Transact(ctx, partition, ops); err != nil {
				w.check.reportViolation("setup", "damaged rows of lane %d: %v", number, err)
			}
		})
	}
}

// countWhole returns the number of rows that are not damaged.
func countWhole(found []storage.Row) (n int) {
	for _, r := range found {
		if !isDamaged(r) {
			n++
		}
	}
	return n
}

func isDamaged(r storage.Row) bool { return strings.HasSuffix(r.Key, junk) }
