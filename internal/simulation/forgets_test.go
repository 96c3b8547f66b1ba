package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// By mistake, some upstreams send a version that is too high. Operators ask holders to forget the
// newest delivered version of a key. The checker checks that a holder forgets only versions that it
// was asked to forget.

// hugeVersion is the version that upstreams send by mistake. It supersedes all other versions.
const hugeVersion = "99999999999999999999"

func (s *settings) drawForgets(d *dice) {
	if d.drawChance("forgetting", 0.4) {
		s.forgets = 1 + d.drawBelow("forgets", 6)
	}
}

// startForgets lets operators ask the holders to forget versions of keys.
func (w *world) startForgets(ctx context.Context) {
	var keys []string
	for i := 3; i < w.keys; i += 4 { // the keys whose contract has the setting "supersede"
		keys = append(keys, fmt.Sprint("k", i))
	}

	for i := range w.settings.forgets {
		if len(keys) == 0 {
			return
		}

		name := fmt.Sprint("forget ", i)
		at, key := w.dice.drawBetween(name+" at", 0, w.trouble),
			keys[w.dice.drawBelow(name+" key", len(keys))]
		w.upstream.Go(func() {
			time.Sleep(at)
			w.askUntilDone(ctx, name, lane.Of(key, w.lanes),
				func(ctx context.Context, s *lane.Store) error {
					_, err := s.Requests().ForgetVersion(ctx, key, "edit")
					if weir.KindOf(err) == weir.NotFound && err != nil {
						return nil
					}
					return err
				})
		})
	}
}

// noteForgetRequests records a transaction's requests to forget versions. It skips the first
// operation of the transaction, because that operation changes head.
func (c *checker) noteForgetRequests(l *laneState, ops []storage.Op) {
	for _, op := range ops[1:] {
		if strings.HasPrefix(op.Key, "w_forget_") {
			if l.forgets == nil {
				l.forgets = map[string]bool{}
			}
			l.forgets[strings.TrimPrefix(op.Key, "w_forget_")] = true
		}
	}
}

// checkForgotten checks which versions a holder's commit forgets. The commit may forget a version
// only on request, and must forget the version if it deletes the request. No message may be
// superseded by a forgotten version. checkForgotten also records the remembered ids that the commit
// forgets.
func (c *checker) checkForgotten(p *process, l *laneState, number int, ops []storage.Op) {
	for _, op := range ops {
		if hash, ok := strings.CutPrefix(op.Key, "k_"); ok && op.Kind == storage.Delete {
			if !l.forgets[hash] {
				c.addViolation("forgotten", "%s forgot a version in lane %d and was not asked to",
					p.name, number)
			}
			c.counts.Forgotten++
			c.markForgotten(l, hash)
		}
	}

	for _, op := range ops {
		if hash, ok := strings.CutPrefix(op.Key, "w_forgetid_"); ok && op.Kind == storage.Delete {
			if l.forgottenIDs == nil {
				l.forgottenIDs = map[string]int64{}
			}
			l.forgottenIDs[hash] = l.last.Tail.Fence
			c.counts.Forgotten++
		}

		if hash, ok := strings.CutPrefix(op.Key, "w_forget_"); ok && op.Kind == storage.Delete {
			delete(l.forgets, hash)
			if _, err := c.w.account.Table().Get(context.Background(),
				fmt.Sprintf("%d.%d", c.store.Epoch, number),
				"k_"+hash); !storage.Is(err, storage.NotFound) {
				c.addViolation("forgotten",
					"%s was asked to forget a version in lane %d, and kept it", p.name, number)
			}
		}

		by, _ := op.Values["SupersededBy"].(string)
		if id, err := weir.ParseID(by); err == nil && id.Seq <= int64(len(l.log)) &&
			l.log[id.Seq-1].forgotten {
			c.addViolation("forgotten",
				"%s superseded %s of lane %d by seq %d, whose version it had forgotten", p.name,
				op.Key, number, id.Seq)
		}
	}
}

// markForgotten is called when the newest version of a key and contract was forgotten. It marks the
// messages whose versions no longer count: the delivered and the superseded ones. The CMS may have
// taken a superseded message, too, if the holder crashed before it committed the delivery.
func (c *checker) markForgotten(l *laneState, hash string) {
	for _, f := range l.log {
		e := c.store.NewEntry(weir.Message{Key: f.key, Contract: "edit"})
		if stage := c.stageOf(f); f.edit && e.SupersedeKey() == hash &&
			(stage == weir.Delivered || stage == weir.Superseded) {
			f.forgotten = true
		}
	}
}
