package lease

import (
	"context"

	"weir/internal/panics"
)

// Do takes the lease, calls do with the lease's context, and releases the lease. A panic of do
// becomes an error, so that the lease is released. If another process has the lease, Do returns
// ErrBusy and does not call do. A lease that storage does not release ends by itself.
func Do(ctx context.Context, cfg Config, name string, do func(context.Context) error) error {
	l, err := Acquire(ctx, cfg, name)
	if err != nil {
		return err
	}

	err = panics.Catch(func() error { return do(l.Context()) })
	if failed := l.Release(ctx); failed != nil {
		l.cfg.Log.Warn("lease: not released", "err", failed)
	}

	return err
}
