package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// runFiles measures the rate at which a sweep takes files from the inbox. The baseline is the rate
// at which Weir accepts posts. The lane is paused, so that Weir delivers nothing meanwhile.
func runFiles(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, rigOptions{hasFiles: true})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n, taken := b.sizes.consume, throughput{}
	posts, err := measureBetweenPosts(ctx, r, n, n, func() (err error) {
		taken, err = measureFiles(ctx, r, n)
		return err
	})
	if err != nil {
		return nil, err
	}

	return []result{newRow("files taken from the inbox, lane paused", "/s", taken.perSecond()).
		withBaseline(posts.perSecond()).
		withNote("%d files, from the start of the sweep to its end, against %d posts of %d clients",
			taken.steps, n, b.sizes.load.clients)}, nil
}

// measureFiles puts n files into the inbox, starts a sweep, and measures the rate of this sweep. If
// the host's timer has started an earlier sweep, the files of the earlier sweep do not count.
func measureFiles(ctx context.Context, r *rig, n int) (throughput, error) {
	if err := dropFiles(ctx, r, n); err != nil {
		return throughput{}, err
	}

	early, err := r.countFiled(ctx) // earlier messages, from posts and from an earlier sweep
	if err != nil {
		return throughput{}, err
	}

	began := time.Now()
	if err := runSweep(ctx, r); err != nil {
		return throughput{}, err
	}

	spent := time.Since(began)
	filed, err := r.countFiled(ctx) // a sweep ends after 50 s even if files are left
	if err == nil && filed == early {
		err = fmt.Errorf("the sweep took no file, and the inbox got %d", n)
	}

	return throughput{steps: int(filed - early), spent: spent}, err
}

// dropFiles puts n files into the inbox, each with one message.
func dropFiles(ctx context.Context, r *rig, n int) error {
	var group errgroup.Group
	group.SetLimit(r.sizes.load.clients)

	for i, m := range makeMessages("/file", n, n) {
		group.Go(func() error {
			return r.account.Inbox().Write(ctx, fmt.Sprintf("%06d.xml", i), "application/xml", nil,
				strings.NewReader(m.articleBody()))
		})
	}

	return group.Wait()
}
