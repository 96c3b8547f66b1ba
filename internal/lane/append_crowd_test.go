package lane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// newChances returns a function that returns random numbers from 0 to 1. A number depends on seed
// and on the virtual time, so the order of goroutines does not matter.
func newChances(seed int) func() float64 {
	return func() float64 { return rand.New(rand.NewPCG(uint64(seed), uint64(time.Now().UnixNano()))).Float64() }
}

// uneven is a table whose requests take a random time, from least to most. About half of this time
// passes before storage gets the request.
type uneven struct {
	storage.Table
	least, most time.Duration
	chance      func() float64
}

// waitOneWay waits for the time that a request or an answer needs to arrive.
func (u uneven) waitOneWay() {
	time.Sleep((u.least + time.Duration(u.chance()*float64(u.most-u.least))) / 2)
}

func (u uneven) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	u.waitOneWay()
	defer u.waitOneWay()
	return u.Table.Get(ctx, partition, key)
}

func (u uneven) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	u.waitOneWay()
	defer u.waitOneWay()
	return u.Table.Range(ctx, q)
}

func (u uneven) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	u.waitOneWay()
	defer u.waitOneWay()
	return u.Table.Transact(ctx, partition, ops)
}

// Several instances append to one lane at the same time. Sometimes an instance cannot write head,
// because another instance has changed head meanwhile. Even so, no post is refused, and each post
// is answered within the bound of the case.
func TestAppender_SeveralInstancesWriteOneLane(t *testing.T) {
	const instances, seconds = 4, 10
	for _, c := range []struct {
		perSecond      int // posts of each instance
		storage, bound time.Duration
	}{
		{1, 10 * time.Millisecond, time.Second},
		{20, 10 * time.Millisecond, time.Second},
		{200, 10 * time.Millisecond, time.Second},
		{1, 100 * time.Millisecond, 5 * time.Second},
		{20, 100 * time.Millisecond, 9 * time.Second},
	} {
		t.Run(fmt.Sprintf("%dASecondWithStorageAt%s", c.perSecond, c.storage), func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				var posts sync.WaitGroup
				var mu sync.Mutex
				var took []time.Duration
				var refused []error
				for i := range instances {
					store := *b.faultless
					store.Rand = newChances(i)
					store.Table = uneven{b.faultless.Table, c.storage, c.storage * 3 / 2,
						store.Rand}
					a, phase := lane.NewAppender(&store, quiet), rand.New(rand.NewPCG(uint64(i), 1))
					for n := range c.perSecond * seconds {
						at := time.Duration((float64(n) +
							phase.Float64()) / float64(c.perSecond) * float64(time.Second))
						posts.Go(func() {
							time.Sleep(at)
							began := time.Now()
							_, err := a.Append(t.Context(), newMessage(fmt.Sprint(i), "x"), "")
							mu.Lock()
							defer mu.Unlock()
							if took = append(took, time.Since(began)); err != nil {
								refused = append(refused, err)
							}
						})
					}
				}

				posts.Wait()
				slices.Sort(took)

				if slowest := took[len(took)-1]; len(refused) != 0 || slowest > c.bound {
					t.Errorf("%d of %d posts refused, such as %v; p50 %s, slowest %s, want 0 and %s at most",
						len(refused), len(took), slices.Concat(refused,
							[]error{nil})[0], took[len(took)/2], slowest, c.bound)
				}
			})
		})
	}
}
