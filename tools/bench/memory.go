package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/weir"
)

const (
	// smallInstance is the memory limit that a handler sets itself on an instance of 512 MiB: half
	// of it, less what Go does not count. A cgroup of that size needs rights a bench has not.
	smallInstance = "GOMEMLIMIT=224MiB"
	heavyElements = 99_000
	searchedBody  = 30 << 10
)

// smallMemory measures the handler's resident set on a small instance under what takes the most of it.
func smallMemory(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, measure := range []func(context.Context) (result, error){b.heavyPosts, b.textSearches, b.hungLarge} {
		row, err := measure(ctx)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// answers counts the answers by status.
type answers struct {
	mu      sync.Mutex
	count   map[int]int
	unsaid  int // refusals without Retry-After
	longest time.Duration
}

func (a *answers) String() string {
	return fmt.Sprintf("%d answered 2xx, %d 503; the last after %.1f s", a.count[http.StatusOK]+a.count[http.StatusAccepted], a.count[http.StatusServiceUnavailable], a.longest.Seconds())
}

// problem returns an error if there are answers other than want and refusals.
func (a *answers) problem(want int) error {
	if a.count[http.StatusOK]+a.count[http.StatusAccepted]+a.count[http.StatusServiceUnavailable] != want || a.unsaid > 0 {
		return fmt.Errorf("answers by status: %v, %d of %d refusals without Retry-After", a.count, a.unsaid, a.count[http.StatusServiceUnavailable])
	}
	return nil
}

// atOnce sends requests at one moment.
func (r *rig) atOnce(ctx context.Context, n int, request func(ctx context.Context, i int) (*http.Request, error)) (*answers, error) {
	a := &answers{count: map[int]int{}}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			req, err := request(ctx, i)
			if err != nil {
				return err
			}
			resp, err := r.client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.count[resp.StatusCode]++
			if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
				a.unsaid++
			}
			a.longest = max(a.longest, time.Since(began))
			return err
		})
	}
	err := group.Wait()
	return a, errors.Join(err, a.problem(n))
}

func (r *rig) posts(ctx context.Context, n int, body func(i int) string) (*answers, error) {
	return r.atOnce(ctx, n, func(ctx context.Context, i int) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.direct()[0], strings.NewReader(body(i)))
		if err == nil {
			req.Header.Set("Content-Type", "application/xml")
		}
		return req, err
	})
}

// heavyArticle is a message of about a megabyte, all of whose elements its contract looks at.
func heavyArticle(path string, elements int) string {
	return fmt.Sprintf(`<article path="%s" version="1">%s</article>`, path, strings.Repeat("<title  />", elements-1)+"<title>T</title>")
}

func (b *bench) heavyPosts(ctx context.Context) (result, error) {
	r, err := b.newRig(ctx, setup{env: []string{smallInstance}})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	n := b.sizes.crowds.heavyPosts
	got, err := r.posts(ctx, n, func(i int) string { return heavyArticle(fmt.Sprint("/heavy/", i), heavyElements) })
	if err != nil {
		return result{}, fmt.Errorf("heavy posts: %w", err)
	}
	if err := r.until(ctx, burstLimit, "what was accepted is written", func() bool { return r.cms.Stats().Writes >= got.count[http.StatusAccepted] }); err != nil {
		return result{}, err
	}
	if err := r.clean(got.count[http.StatusAccepted]); err != nil {
		return result{}, err
	}
	return r.resident(fmt.Sprintf("memory, %d posts at a time of %d elements: peak resident set", n, heavyElements), got)
}

func (b *bench) textSearches(ctx context.Context) (result, error) {
	size, n := b.sizes.crowds.searched, b.sizes.crowds.searches
	r, err := b.newRig(ctx, setup{env: []string{smallInstance}, filled: func(ctx context.Context, r *rig) error {
		return fillAtOnce(ctx, r.store, messages("searched", size, size), 16, func(_ int, m *weir.Message) string {
			m.DueAt, m.Body = time.Now().Add(24*time.Hour), []byte(largeArticle(m.Key, searchedBody))
			return ""
		})
	}})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	got, err := r.atOnce(ctx, n, func(ctx context.Context, _ int) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, r.direct()[0]+"?text=not+to+be+found", nil)
	})
	if err != nil {
		return result{}, fmt.Errorf("searches: %w", err)
	}
	return r.resident(fmt.Sprintf("memory, %d searches at a time over %d messages of %d KiB: peak resident set", n, size, searchedBody>>10), got)
}

func (b *bench) hungLarge(ctx context.Context) (result, error) {
	r, err := b.newRig(ctx, setup{hangs: true, env: []string{smallInstance}})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return result{}, err
	}
	release := r.hung.Hang(nil)
	defer release()
	n := b.sizes.crowds.hungLarge
	body := largeArticle("/hung", 1000<<10)
	got, err := r.posts(ctx, n, func(int) string { return body })
	if err != nil {
		return result{}, fmt.Errorf("posts while storage hangs: %w", err)
	}
	if got.count[http.StatusServiceUnavailable] != n {
		return result{}, fmt.Errorf("posts while storage hangs: %v", got.count)
	}
	return r.resident(fmt.Sprintf("memory, %d posts of 1 MiB while storage hangs: peak resident set", n), got)
}

// resident returns a row with the handler's peak memory since it began.
func (r *rig) resident(name string, got *answers) (result, error) {
	peak, err := peakMemory(r.host.Status().Instances[0].PID)
	return measured(name, "MiB", peak).atMost(residentLimit).noted("%s; %s, not a cgroup", got, smallInstance), err
}
