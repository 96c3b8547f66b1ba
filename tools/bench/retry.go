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

	"weir/internal/democms"
)

const (
	retrySpace = "/retry/"
	// retryWait is the time from the first attempt to the second one. A message's status has the
	// planned time of the second attempt only between these attempts. So retryWait must be long
	// enough to read the status.
	retryWait   = 700 * time.Millisecond
	statusPause = 5 * time.Millisecond
)

// runRetry makes the first attempt of some messages fail. For each second attempt it measures the
// time from the planned time to the start of the attempt. It also posts messages that succeed.
// Without their success, the holder would treat the CMS as failed and pause the lane.
func runRetry(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: dueLatency, retryWait: retryWait})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	r.cms.SetFaults(democms.Faults{FailFirst: retrySpace})
	n := b.sizes.retry.messages
	a := spreadDueTimes("timer", n, time.Now().Add(retryWait), time.Duration(n)*b.sizes.retry.gap)
	yardstick, err := startTimers(ctx, a)
	if err != nil {
		return nil, err
	}

	planned, err1 := postFailing(ctx, r, n)
	bare, err2 := yardstick.awaitLateness(a)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	if err := r.awaitRest(ctx); err != nil {
		return nil, err
	}

	late, err := retryLateness(r, planned)
	if err := errors.Join(err, r.checkRecord(2*n)); err != nil {
		return nil, err
	}

	return []result{
		newRow("retry: lateness p50, live instance", "ms", median(late)).withBaseline(median(bare)).
			withNote("%s; %d of %d second attempts came before the status was read",
				describeSpread(late), n-len(late), n),
		newRow("retry: lateness p99, live instance", "ms",
			percentile(late, 0.99)).withBaseline(percentile(bare, 0.99)).limitValue(20),
		newRow("retry: lateness max, live instance", "ms", slices.Max(late)).withBaseline(
			slices.Max(bare)),
	}, nil
}

// postFailing posts pairs of messages: one whose first attempt fails, and one that succeeds. It
// returns the planned time of each second attempt by path. If a message is delivered before
// postFailing has read the message's status, the result has no entry for the message.
func postFailing(ctx context.Context, r *rig, n int) (map[string]time.Time, error) {
	moments := make([]time.Time, n)
	looks, looking := errgroup.WithContext(ctx)
	for i := range n {
		m := message{fmt.Sprint(retrySpace, i), 1}
		id, err := postForID(ctx, r, m)
		if err != nil {
			return nil, err
		}

		looks.Go(func() (err error) {
			moments[i],
				err = awaitNextAttempt(looking, r, id)
			return err
		})

		if err := postMessage(ctx, r.client, r.receiveURL(), message{fmt.Sprint("/well/", i), 1}); err != nil {
			return nil, err
		}

		// with equal pauses, each retry would coincide with a post
		if !sleepFor(ctx, rand.N(2*r.sizes.retry.gap)) {
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

type messageState struct {
	ID            string    `json:"id"`
	Stage         string    `json:"stage"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
}

func postForID(ctx context.Context, r *rig, m message) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.receiveURL(),
		strings.NewReader(m.articleBody()))
	if err != nil {
		return "", err
	}

	req.Header.Set("Content-Type", "application/xml")
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var st messageState
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("post: %s", resp.Status)
	}

	err = json.NewDecoder(resp.Body).Decode(&st)

	return st.ID, err
}

// awaitNextAttempt reads a message's status until the message waits for its second attempt, and
// returns the planned time of this attempt. If the message is already delivered, awaitNextAttempt
// returns the zero time.
func awaitNextAttempt(ctx context.Context, r *rig, id string) (time.Time, error) {
	for {
		var st messageState
		err := getURL(ctx, r.client, r.receiveURL()+"/"+id,
			func(body io.Reader) error { return json.NewDecoder(body).Decode(&st) })

		switch {
		case err != nil:
			return time.Time{}, err
		case st.Stage == "retrying", st.Stage == "delivered":
			return st.NextAttemptAt, nil
		case !sleepFor(ctx, statusPause):
			return time.Time{}, ctx.Err()
		}
	}
}

// retryLateness returns how late the second attempt began for each path in "planned", in ms. A
// missing attempt, or an attempt that began before its planned time, is an error.
func retryLateness(r *rig, planned map[string]time.Time) ([]float64, error) {
	var late []float64
	var early []error
	for _, req := range r.cms.Requests() {
		at, known := planned[req.Path]
		if !known || req.Attempt != 2 {
			continue
		}

		if req.StartedAt.Before(at) {
			early = append(early,
				fmt.Errorf("the retry of %s came %s early", req.Path, at.Sub(req.StartedAt)))
		}

		late = append(late, milliseconds(req.StartedAt.Sub(at)))
	}

	if len(late) != len(planned) {
		early = append(early, fmt.Errorf("%d of %d retries came", len(late), len(planned)))
	}

	return late, errors.Join(early...)
}
