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
	hangLimit     = 5 * time.Minute
	hungFlowGap   = 100 * time.Millisecond
	largeEvery    = 8         // every eighth post has a body of largePost bytes
	largePost     = 400 << 10 // size in bytes of a body that needs a blob
)

// runHang measures two cases in which storage accepts requests and does not answer:
//   - all requests hang: the time until Weir refuses a post
//   - one request hangs: the longest time in which no request to the CMS begins
func runHang(ctx context.Context, b *bench) ([]result, error) {
	posts, err := measureRefusals(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("all requests: %w", err)
	}

	lane, err := measureStandstills(ctx, b)
	if err != nil {
		return []result{posts}, fmt.Errorf("one request: %w", err)
	}

	return []result{posts, lane}, nil
}

// measureRefusals posts messages while all requests to storage hang. Then it lets storage answer,
// and posts until Weir accepts a message.
func measureRefusals(ctx context.Context, b *bench) (result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{canHang: true})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	release := r.hangingProxy.Hang(nil)
	defer release()
	n, span := b.sizes.crowds.hang.posts, b.sizes.crowds.hang.span
	waits := make([]float64, n)
	group, posting := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			if !sleepFor(posting, span/time.Duration(n)*time.Duration(i)) {
				return posting.Err()
			}

			began := time.Now()
			err := expectRefusal(posting, r, i)
			waits[i] = time.Since(began).Seconds()
			return err
		})
	}

	if err := group.Wait(); err != nil {
		return result{}, err
	}

	release()
	began := time.Now()
	err = r.awaitCondition(ctx, hangLimit, "posts are accepted again",
		func() bool {
			return postMessage(ctx, r.client, r.receiveURL(),
				message{"/again", 1}) == nil
		})

	return newRow("storage hangs: until a post is refused, max", "s", slices.Max(waits)).limitValue(refusedWithin).
		withNote("%d posts within %s, every %dth of %d KiB; p50 %.2f s; accepted again %.2f s after storage answers",
			n, span, largeEvery, largePost>>10, median(waits), time.Since(began).Seconds()), err
}

// expectRefusal posts a message while storage hangs. Each answer except a 503 with Retry-After is
// an error. A post without an answer, for instance because of the client's time limit, counts as
// refused.
func expectRefusal(ctx context.Context, r *rig, i int) error {
	path := fmt.Sprint("/hung/", i)
	body := message{path, 1}.articleBody()
	if i%largeEvery == largeEvery-1 {
		body = largeArticle(path, largePost)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.handlerURLs()[0],
		strings.NewReader(body))
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
		return fmt.Errorf("a post into storage that hangs: %s, Retry-After %q", resp.Status,
			resp.Header.Get("Retry-After"))
	}

	return nil
}

// hungKinds has the kinds of storage requests that measureStandstills tests.
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

// measureStandstills posts messages steadily and lets one storage request of each kind hang, one
// kind after the other. It measures the longest time in which no request to the CMS begins.
func measureStandstills(ctx context.Context, b *bench) (result, error) {
	r, err := b.newWarmRig(ctx,
		rigOptions{canHang: true, lease: takeoverLease, latency: dueLatency})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	var longest float64
	var notes []string
	for _, kind := range hungKinds {
		d, err := measureOneHang(ctx, r, kind.name, kind.is)
		if err != nil {
			return result{}, fmt.Errorf("%s: %w", kind.name, err)
		}
		longest = max(longest, d.Seconds())
		notes = append(notes, fmt.Sprintf("%s %.2f s", kind.name, d.Seconds()))
	}

	return newRow("one storage request hangs: the lane's standstill, max", "s", longest).limitValue(10).
		withNote("a message each %s; %s", hungFlowGap, strings.Join(notes, ", ")), nil
}

// measureOneHang lets one storage request hang, and waits until the CMS gets messages again. It
// returns the longest time in which no request to the CMS began.
func measureOneHang(ctx context.Context, r *rig, name string,
	is func(*http.Request) bool) (time.Duration, error) {
	var taken atomic.Bool
	posting, stop := context.WithCancel(ctx)
	var posts sync.WaitGroup
	posts.Go(func() { postSteadily(posting, r, name) })
	defer func() { stop(); posts.Wait() }()
	from := time.Now()
	flow := r.sizes.crowds.hang.flow
	if !sleepFor(ctx, flow/4) {
		return 0, ctx.Err()
	}

	release := r.hangingProxy.Hang(func(req *http.Request) bool {
		return is(req) &&
			taken.CompareAndSwap(false, true)
	})
	defer release()
	if err := r.awaitCondition(ctx, hangLimit, "a request hangs", taken.Load); err != nil {
		return 0, err
	}

	sleepFor(ctx, flow)
	since := time.Now()
	err := r.awaitCondition(ctx, hangLimit, "the CMS gets messages again", func() bool {
		all := r.cms.Requests()
		return len(all) > 0 && all[len(all)-1].StartedAt.After(since)
	})

	return longestStandstill(r.cms.Requests(), from, time.Now()), errors.Join(err, ctx.Err())
}

// postSteadily posts messages at equal intervals until ctx ends. It does not wait for answers, and
// ignores errors. The paths contain the first word of "space".
func postSteadily(ctx context.Context, r *rig, space string) {
	var posts sync.WaitGroup
	defer posts.Wait()
	for i := 0; sleepFor(ctx, hungFlowGap); i++ {
		m := message{fmt.Sprintf("/%s/%d", strings.Fields(space)[0], i), 1}
		posts.Go(func() { _ = postMessage(ctx, r.client, r.receiveURL(), m) })
	}
}
