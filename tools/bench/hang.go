package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	refusedWithin = 10.0 // s
	hangLimit     = 75 * time.Second
	hungFlowGap   = 100 * time.Millisecond
	largeEvery    = 8 // of the posts into hanging storage, one has a body that needs a blob
	largePost     = 400 << 10
)

// hang measures how soon posts are refused while storage takes requests and answers none, and how
// long a lane stands still for one request that gets no answer.
func hang(ctx context.Context, b *bench) ([]result, error) {
	posts, err := b.hangAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("all requests: %w", err)
	}
	lane, err := b.hangOnes(ctx)
	if err != nil {
		return []result{posts}, fmt.Errorf("one request: %w", err)
	}
	return []result{posts, lane}, nil
}

// hangAll posts while everything hangs, and again when it no longer does.
func (b *bench) hangAll(ctx context.Context) (result, error) {
	r, err := b.newRig(ctx, setup{hangs: true})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return result{}, err
	}
	release := r.hung.Hang(nil)
	defer release()
	n, span := b.sizes.crowds.hungPosts, b.sizes.crowds.hungSpan
	waits := make([]float64, n)
	group, posting := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			if !pause(posting, span/time.Duration(n)*time.Duration(i)) {
				return posting.Err()
			}
			began := time.Now()
			err := r.expectRefusal(posting, i)
			waits[i] = time.Since(began).Seconds()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	release()
	began := time.Now()
	err = r.until(ctx, hangLimit, "posts are accepted again",
		func() bool { return post(ctx, r.client, r.receive(), message{"/again", 1}) == nil })
	return measured("storage hangs: until a post is refused, max", "s", slices.Max(waits)).atMost(refusedWithin).
		noted("%d posts within %s, every %dth of %d KiB; p50 %.2f s; accepted again %.2f s after the end of it",
			n, span, largeEvery, largePost>>10, median(waits), time.Since(began).Seconds()), err
}

// expectRefusal posts a message that cannot be filed. No answer within the client's own time
// limit counts as a refusal that late.
func (r *rig) expectRefusal(ctx context.Context, i int) error {
	path := fmt.Sprint("/hung/", i)
	body := message{path, 1}.body()
	if i%largeEvery == largeEvery-1 {
		body = largeArticle(path, largePost)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.direct()[0], strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/xml")
	resp, err := r.client.Do(req)
	if err != nil {
		return ctx.Err()
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		return fmt.Errorf("a post into storage that hangs: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	return nil
}

// hungKinds are the requests of which one is to hang.
var hungKinds = []struct {
	name string
	is   func(*http.Request) bool
}{
	{"transaction", func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "$batch") }},
	{"query", func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "lanes(")
	}},
	{"renewal of the lease", func(r *http.Request) bool { return r.Header.Get("X-Ms-Lease-Action") == "renew" }},
}

// hangOnes lets one request of each kind hang while messages come, and takes the longest time in
// which the CMS gets none.
func (b *bench) hangOnes(ctx context.Context) (result, error) {
	r, err := b.newRig(ctx, setup{hangs: true, lease: takeoverLease, latency: dueLatency})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return result{}, err
	}
	var longest float64
	var notes []string
	for _, kind := range hungKinds {
		d, err := r.hangOne(ctx, kind.name, kind.is)
		if err != nil {
			return result{}, fmt.Errorf("%s: %w", kind.name, err)
		}
		longest = max(longest, d.Seconds())
		notes = append(notes, fmt.Sprintf("%s %.2f s", kind.name, d.Seconds()))
	}
	return measured("one storage request hangs: the lane's standstill, max", "s", longest).atMost(10).
		noted("a message each %s; %s", hungFlowGap, strings.Join(notes, ", ")), nil
}

// hangOne returns the lane's longest standstill around one request that hangs.
func (r *rig) hangOne(ctx context.Context, name string, is func(*http.Request) bool) (time.Duration, error) {
	var taken atomic.Bool
	posting, stop := context.WithCancel(ctx)
	var posts sync.WaitGroup
	posts.Go(func() { r.flood(posting, name) })
	defer func() { stop(); posts.Wait() }()
	from := time.Now()
	flow := r.sizes.crowds.hungFlow
	if !pause(ctx, flow/4) {
		return 0, ctx.Err()
	}
	release := r.hung.Hang(func(req *http.Request) bool { return is(req) && taken.CompareAndSwap(false, true) })
	defer release()
	if err := r.until(ctx, hangLimit, "a request hangs", taken.Load); err != nil {
		return 0, err
	}
	pause(ctx, flow)
	since := time.Now()
	err := r.until(ctx, hangLimit, "the CMS gets messages again", func() bool {
		all := r.cms.Requests()
		return len(all) > 0 && all[len(all)-1].StartedAt.After(since)
	})
	return standstill(r.cms.Requests(), from, time.Now()), errors.Join(err, ctx.Err())
}

// flood posts messages at even distances, without waiting for answers. Refused ones do not count.
func (r *rig) flood(ctx context.Context, space string) {
	var posts sync.WaitGroup
	defer posts.Wait()
	for i := 0; pause(ctx, hungFlowGap); i++ {
		m := message{fmt.Sprintf("/%s/%d", strings.Fields(space)[0], i), 1}
		posts.Go(func() { _ = post(ctx, r.client, r.receive(), m) })
	}
}
