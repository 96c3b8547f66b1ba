package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/tools/democms/server"
)

const (
	retrySpace = "/retry/"
	// retryWait is long enough that the status can be asked for the moment before it comes.
	retryWait   = 700 * time.Millisecond
	statusPause = 5 * time.Millisecond
)

// retry lets every first attempt fail and measures how long after its planned moment the
// second begins. Messages between, which go well, keep the lane from taking it for the
// CMS's failure.
func retry(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: dueLatency, wait: retryWait})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	r.cms.SetFaults(server.Faults{FailFirst: retrySpace})
	n := b.sizes.retries
	a := appoint("timer", n, time.Now().Add(retryWait), time.Duration(n)*b.sizes.retryGap)
	yardstick, err := startTimers(ctx, a)
	if err != nil {
		return nil, err
	}
	planned, err1 := r.fail(ctx, n)
	bare, err2 := yardstick.end(a)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return nil, err
	}
	late, err := r.retried(planned)
	if err := errors.Join(err, r.clean(2*n)); err != nil {
		return nil, err
	}
	return []result{
		measured("retry: lateness p50, live instance", "ms", median(late)).against(median(bare)).
			noted("%s; %d of %d were over before the status told their moment", spread(late), n-len(late), n),
		measured("retry: lateness p99, live instance", "ms", percentile(late, 0.99)).against(percentile(bare, 0.99)).atMost(20),
		measured("retry: lateness max, live instance", "ms", slices.Max(late)).against(slices.Max(bare)),
	}, nil
}

// fail posts messages whose first attempt fails, each followed by one that goes well, and
// gives the moments that the status names for the second attempts.
func (r *rig) fail(ctx context.Context, n int) (map[string]time.Time, error) {
	moments := make([]time.Time, n)
	looks, looking := errgroup.WithContext(ctx)
	for i := range n {
		m := message{fmt.Sprint(retrySpace, i), 1}
		id, err := r.file(ctx, m)
		if err != nil {
			return nil, err
		}
		looks.Go(func() (err error) { moments[i], err = r.nextAttempt(looking, id); return err })
		if err := post(ctx, r.client, r.receive(), message{fmt.Sprint("/well/", i), 1}); err != nil {
			return nil, err
		}
		if !pause(ctx, rand.N(2*r.sizes.retryGap)) { // else retries would keep step with posts
			return nil, ctx.Err()
		}
	}
	if err := looks.Wait(); err != nil {
		return nil, err
	}
	planned := map[string]time.Time{}
	for i, at := range moments {
		if !at.IsZero() {
			planned[fmt.Sprint(retrySpace, i)] = at
		}
	}
	return planned, nil
}

// state is what is read of the answers about a message.
type state struct {
	ID            string    `json:"id"`
	Stage         string    `json:"stage"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
}

// file posts a message and gives its id.
func (r *rig) file(ctx context.Context, m message) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.receive(), strings.NewReader(m.body()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/xml")
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var st state
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("post: %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&st)
	return st.ID, err
}

// nextAttempt asks a message's status until it tells when it is tried again; zero when
// that was over first.
func (r *rig) nextAttempt(ctx context.Context, id string) (time.Time, error) {
	for {
		var st state
		err := get(ctx, r.client, r.receive()+"/"+id, func(body io.Reader) error { return json.NewDecoder(body).Decode(&st) })
		switch {
		case err != nil:
			return time.Time{}, err
		case st.Stage == "retrying", st.Stage == "delivered":
			return st.NextAttemptAt, nil
		case !pause(ctx, statusPause):
			return time.Time{}, ctx.Err()
		}
	}
}

// retried gives, in ms, how long after its planned moment each second attempt began. One
// that began before it is an error.
func (r *rig) retried(planned map[string]time.Time) ([]float64, error) {
	var late []float64
	var early []error
	for _, req := range r.cms.Requests() {
		at, known := planned[req.Path]
		if !known || req.Attempt != 2 {
			continue
		}
		if req.StartedAt.Before(at) {
			early = append(early, fmt.Errorf("the retry of %s came %s early", req.Path, at.Sub(req.StartedAt)))
		}
		late = append(late, ms(req.StartedAt.Sub(at)))
	}
	if len(late) != len(planned) {
		early = append(early, fmt.Errorf("%d of %d retries came", len(late), len(planned)))
	}
	return late, errors.Join(early...)
}
