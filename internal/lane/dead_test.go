package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

func TestStore_Dead(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		w, err := b.eyes.RaiseFence(t.Context(), 0, "one", lane.Tail{}, func(*lane.Tail) {})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if _, err := a.Append(t.Context(), message(fmt.Sprint("/", i), "x"), ""); err != nil {
				t.Fatal(err)
			}
		}
		at := time.Now().UTC()
		for seq := range int64(5) {
			stage := weir.Dead
			if seq == 1 {
				stage = weir.Delivered
			}
			b.finish(w, seq+1, stage)
		}
		found, more, err := b.store.ReadDead(t.Context(), 0, 0, 2)
		if err != nil || len(found) != 2 || !more || found[0].Seq != 1 || found[1].Seq != 3 {
			t.Fatalf("%+v, more %v, %v", found, more, err)
		}
		if r := found[1]; r.Key != "/2" || r.Contract != "article" || r.DiedAt.Before(at) {
			t.Errorf("%+v", r)
		}
		found, more, err = b.store.ReadDead(t.Context(), 0, found[1].Seq, 5)
		if err != nil || len(found) != 2 || more || found[0].Seq != 4 || found[1].Seq != 5 {
			t.Errorf("%+v, more %v, %v", found, more, err)
		}
	})
}
