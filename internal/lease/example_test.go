package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lease"
	"weir/internal/storage/memory"
)

// A process that has a lease works under the lease's context. This context ends when the lease can
// no longer be trusted.
func ExampleAcquire() {
	cfg := lease.Config{Leases: memory.New(time.Now).Leases(), Length: 15 * time.Second}
	ctx := context.Background()
	taken, err := lease.Acquire(ctx, cfg, "lane-1.0")
	if err != nil {
		panic(err)
	}

	_, err = lease.Acquire(ctx, cfg, "lane-1.0")
	fmt.Println("second holder:", errors.Is(err, lease.ErrBusy))
	fmt.Println("trusted:", taken.Trusted(), taken.Context().Err())

	if err := taken.Release(ctx); err != nil {
		panic(err)
	}

	fmt.Println("after the release:", taken.Trusted(), taken.Context().Err())
	// Output:
	// second holder: true
	// trusted: true <nil>
	// after the release: false context canceled
}
