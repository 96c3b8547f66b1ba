package lane

import (
	"context"
	"sync"

	"weir/internal/clock"
	"weir/internal/storage"
)

// Drop removes what an undone change has left of an epoch that never opened, or retention
// of one that is over: all rows of the lane, its control rows last.
func (s *Store) Drop(ctx context.Context, lane int) error {
	for {
		page, err := s.Table.Range(ctx, storage.Query{Partition: s.partition(lane), From: "a", Limit: storage.MaxOps, Columns: []string{"Seq"}})
		if err == nil && len(page.Rows) == 0 {
			page, err = s.Table.Range(ctx, storage.Query{Partition: s.partition(lane), Limit: storage.MaxOps, Columns: []string{"Seq"}})
		}
		if err == nil && len(page.Rows) == 0 {
			return nil
		}
		if err == nil {
			ops := make([]storage.Op, len(page.Rows))
			for i, row := range page.Rows {
				ops[i] = storage.Op{Kind: storage.Delete, Key: row.Key}
			}
			_, err = s.Table.Transact(ctx, s.partition(lane), ops)
		}
		// NotFound: another try of ours, or another process, was faster.
		if err != nil && !uncertain(err) && !storage.Is(err, storage.NotFound) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			clock.Sleep(ctx, resendPause)
		}
	}
}

// atOnce is how many requests of one kind Each lets be under way.
const atOnce = 8

// Each calls f for 0 to n-1, a few at a time, and gives back the first error by number.
func Each(n int, f func(int) error) error {
	errs := make([]error, n)
	turns := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-turns
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
