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
	// smallInstance sets the memory limit that a handler chooses for itself on an instance of 512
	// MiB: half of the instance's memory, minus the memory that Go does not count. The bench sets
	// the limit in the environment, because it has no right to make a cgroup of 512 MiB.
	smallInstance = "GOMEMLIMIT=224MiB"
	heavyElements = 99_000
	searchedBody  = 30 << 10 // bytes
)

// runMemory measures the handler's largest resident set under the loads that take the most memory.
// The handler has the memory limit smallInstance.
func runMemory(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, measure := range []func(context.Context, *bench) (result, error){
		measureHeavyPosts, measureTextSearches, measureHungPosts,
	} {
		row, err := measure(ctx, b)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}

	return rows, nil
}

// answerCounts counts the answers to concurrent requests.
type answerCounts struct {
	mu                sync.Mutex
	byStatus          map[int]int
	withoutRetryAfter int           // number of answers 503 without Retry-After
	untilLast         time.Duration // time from the first request to the last answer
}

func (a *answerCounts) String() string {
	return fmt.Sprintf("%d answered 2xx, %d 503; the last after %.1f s", a.byStatus[http.StatusOK]+
		a.byStatus[http.StatusAccepted], a.byStatus[http.StatusServiceUnavailable],
		a.untilLast.Seconds())
}

// checkAnswers expects exactly "want" answers with the status 200, 202 or 503, and Retry-After in
// each 503. If the answers differ from this, it returns an error.
func (a *answerCounts) checkAnswers(want int) error {
	if a.byStatus[http.StatusOK]+a.byStatus[http.StatusAccepted]+
		a.byStatus[http.StatusServiceUnavailable] != want ||
		a.withoutRetryAfter > 0 {
		return fmt.Errorf("answers by status: %v, %d of %d answers 503 without Retry-After",
			a.byStatus, a.withoutRetryAfter, a.byStatus[http.StatusServiceUnavailable])
	}
	return nil
}

// sendAtOnce sends n requests concurrently, and checks the answers. The function "request" returns
// request i.
func sendAtOnce(ctx context.Context, r *rig, n int,
	request func(ctx context.Context, i int) (*http.Request, error)) (*answerCounts, error) {
	a := &answerCounts{byStatus: map[int]int{}}
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
			a.byStatus[resp.StatusCode]++
			if resp.StatusCode == http.StatusServiceUnavailable &&
				resp.Header.Get("Retry-After") == "" {
				a.withoutRetryAfter++
			}

			a.untilLast = max(a.untilLast, time.Since(began))

			return err
		})
	}

	err := group.Wait()

	return a, errors.Join(err, a.checkAnswers(n))
}

// postAtOnce posts n messages concurrently, and checks the answers.
func postAtOnce(ctx context.Context, r *rig, n int,
	body func(i int) string) (*answerCounts, error) {
	return sendAtOnce(ctx, r, n, func(ctx context.Context, i int) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.handlerURLs()[0],
			strings.NewReader(body(i)))
		if err == nil {
			req.Header.Set("Content-Type", "application/xml")
		}
		return req, err
	})
}

// heavyArticle returns an XML message with the given number of title elements, most of them ten
// bytes long. The contract's field ./title selects all these elements, so that the handler needs
// much memory.
func heavyArticle(path string, elements int) string {
	return fmt.Sprintf(`<article path="%s" version="1">%s</article>`, path,
		strings.Repeat("<title  />", elements-1)+"<title>T</title>")
}

// measureHeavyPosts posts concurrent messages with many elements.
func measureHeavyPosts(ctx context.Context, b *bench) (result, error) {
	r, err := b.newRig(ctx, rigOptions{env: []string{smallInstance}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	n := b.sizes.crowds.memory.posts
	got, err := postAtOnce(ctx, r, n, func(i int) string {
		return heavyArticle(fmt.Sprint("/heavy/", i),
			heavyElements)
	})
	if err != nil {
		return result{}, fmt.Errorf("heavy posts: %w", err)
	}

	if err := r.awaitCondition(ctx, burstLimit, "the accepted messages are written",
		func() bool { return r.cms.Stats().Writes >= got.byStatus[http.StatusAccepted] }); err !=
		nil {
		return result{}, err
	}

	if err := r.checkRecord(got.byStatus[http.StatusAccepted]); err != nil {
		return result{}, err
	}

	return residentRow(r, fmt.Sprintf("memory, %d posts at a time of %d elements: peak resident set", n, heavyElements),
		got)
}

// measureTextSearches makes concurrent searches for a text in the bodies of scheduled messages. No
// body contains the text, so each search reads all bodies.
func measureTextSearches(ctx context.Context, b *bench) (result, error) {
	size, n := b.sizes.crowds.memory.searched, b.sizes.crowds.memory.searches
	r, err := b.newRig(ctx, rigOptions{env: []string{smallInstance},
		beforeHost: func(ctx context.Context, r *rig) error {
			return fillAtOnce(ctx, r.store, makeMessages("searched", size, size), 16,
				func(_ int, m *weir.Message) string {
					m.DueAt, m.Body = time.Now().Add(24*time.Hour),
						[]byte(largeArticle(m.Key, searchedBody))
					return ""
				})
		}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	got, err := sendAtOnce(ctx, r, n, func(ctx context.Context, _ int) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet,
			r.handlerURLs()[0]+"?text=not+to+be+found", nil)
	})
	if err != nil {
		return result{}, fmt.Errorf("searches: %w", err)
	}

	return residentRow(r, fmt.Sprintf("memory, %d searches at a time over %d messages of %d KiB: peak resident set",
		n, size, searchedBody>>10), got)
}

// measureHungPosts posts large messages concurrently while storage does not answer. Each post must
// get a 503.
func measureHungPosts(ctx context.Context, b *bench) (result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{canHang: true, env: []string{smallInstance}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	release := r.hangingProxy.Hang(nil)
	defer release()
	n := b.sizes.crowds.memory.hung
	body := largeArticle("/hung", 1000<<10)
	got, err := postAtOnce(ctx, r, n, func(int) string { return body })
	if err != nil {
		return result{}, fmt.Errorf("posts while storage hangs: %w", err)
	}
	if got.byStatus[http.StatusServiceUnavailable] != n {
		return result{}, fmt.Errorf("posts while storage hangs: %v", got.byStatus)
	}

	return residentRow(r, fmt.Sprintf("memory, %d posts of 1 MiB while storage hangs: peak resident set", n), got)
}

// residentRow returns a row with the handler's largest resident set since its start.
func residentRow(r *rig, name string, got *answerCounts) (result, error) {
	peak, err := peakMemory(r.host.Status().Instances[0].PID)
	return newRow(name, "MiB", peak).limitValue(residentLimit).withNote("%s; %s, not a cgroup", got,
		smallInstance), err
}
