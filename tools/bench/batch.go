package main

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// runBatch measures the rate at which Weir accepts the parts of a batch. The baseline is the rate
// of messages that are posted one by one. The lane is paused, so that Weir delivers nothing
// meanwhile.
func runBatch(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n, parts := b.sizes.consume, throughput{}
	posts, err := measureBetweenPosts(ctx, r, n, n, func() (err error) {
		parts, err = measureBatch(ctx, r, n)
		return err
	})
	if err != nil {
		return nil, err
	}

	return []result{newRow("parts of a batch filed, lane paused", "/s", parts.perSecond()).
		withBaseline(posts.perSecond()).
		withNote("%d parts, from the post to the last one filed, against as many posts of %d clients", n,
			b.sizes.load.clients)}, nil
}

// measureBatch posts a batch of n parts, and measures the time until all parts are in the log of
// the lane.
func measureBatch(ctx context.Context, r *rig, n int) (throughput, error) {
	before, err := r.countFiled(ctx)
	if err != nil {
		return throughput{}, err
	}

	var document strings.Builder
	document.WriteString("<feed>")
	for _, m := range makeMessages("/batch", n, n) {
		document.WriteString(m.articleBody())
	}

	document.WriteString("</feed>")
	address := strings.TrimSuffix(r.handlerURLs()[0], "/messages") + "/batches?split=/feed/article"
	began := time.Now()
	if err := postFor(ctx, r.client, address, document.String(), http.StatusAccepted); err != nil {
		return throughput{}, err
	}

	err = r.awaitCondition(ctx, time.Minute+time.Duration(n)*100*time.Millisecond,
		"all parts are filed", func() bool {
			filed, err := r.countFiled(ctx)
			return err == nil && filed-before >= int64(n)
		})

	return throughput{steps: n, spent: time.Since(began)}, err
}
