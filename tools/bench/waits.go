package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	waitedPost = 50.0 // limit in ms for one post while other answers wait
	// limit of table queries per second, while answers wait and the lane is paused
	waitedLooks   = 2.0
	stateRequests = 2.0 // limit of storage requests for one read of a status
)

// runWaits measures posts while many other posts wait for their answers, and the storage requests
// for these answers. A post with the header Prefer: wait gets its answer when its message is final.
// runWaits also measures the cost of reading a message's status in a backlog.
func runWaits(ctx context.Context, b *bench) ([]result, error) {
	waiting, err := measureWaitingAnswers(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("waiting answers: %w", err)
	}

	states, err := measureStateCosts(ctx, b)
	if err != nil {
		return waiting, fmt.Errorf("states: %w", err)
	}

	return append(waiting, states...), nil
}

// measureWaitingAnswers pauses all lanes and posts with Prefer: wait, so that the answers wait.
// Meanwhile it measures other posts.
func measureWaitingAnswers(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{env: []string{smallInstance}})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if err := pauseAllLanes(ctx, r); err != nil {
		return nil, err
	}

	n, span := b.sizes.crowds.waits.answers, b.sizes.crowds.waits.span
	var waited atomic.Int64
	group, posting := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			sleepFor(posting, span/2/time.Duration(n)*time.Duration(i))
			applied, err := postWaiting(posting, r, fmt.Sprint("/waited/", i), 2*span)
			if applied {
				waited.Add(1)
			}
			return err
		})
	}

	if !sleepFor(ctx, span*3/4) {
		return nil, ctx.Err()
	}

	before, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	began := time.Now()
	sleepFor(ctx, span/2)
	after, err := r.readTransactions(ctx)
	seconds := time.Since(began).Seconds()
	if err != nil {
		return nil, err
	}

	posts, err := measurePosts(ctx, r, span/2)
	if err != nil {
		return nil, err
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	peak, err := peakMemory(r.host.Status().Instances[0].PID)
	queries := (after["table query"] - before["table query"]) / seconds

	return []result{
		newRow(fmt.Sprintf("%d answers held: a post beside them, p99", n), "ms",
			percentile(posts, 0.99)).limitValue(waitedPost).
			withNote("%s; %d waited, each %s", describeSpread(posts), waited.Load(), 2*span),
		newRow(fmt.Sprintf("%d answers held: queries a second, one lane", n), "1/s", queries).limitValue(waitedLooks),
		newRow(fmt.Sprintf("%d answers held: peak resident set", n), "MiB",
			peak).limitValue(residentLimit).withNote("%s", smallInstance),
	}, err
}

func pauseAllLanes(ctx context.Context, r *rig) error {
	return sendCommand(ctx, r, "/pause", `{"all": true, "reason": "bench"}`)
}

// sendCommand posts JSON directly to the handler of the first instance. The host does not see this
// request.
func sendCommand(ctx context.Context, r *rig, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		handlerURL(r.host.Status().Instances[0])+"/api"+path, strings.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}

	return nil
}

// postWaiting posts a message with Prefer: wait, and reports whether Weir applied this preference.
func postWaiting(ctx context.Context, r *rig, path string, wait time.Duration) (applied bool,
	err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.handlerURLs()[0],
		strings.NewReader(message{path, 1}.articleBody()))
	if err != nil {
		return false, err
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Prefer", fmt.Sprintf("wait=%d", int(wait.Seconds())))
	resp, err := r.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return false, fmt.Errorf("a post that waits: %s", resp.Status)
	}

	_, err = io.Copy(io.Discard, resp.Body)

	return resp.Header.Get("Preference-Applied") != "", err
}

// measurePosts posts messages one after the other for a time span, and returns the duration of each
// post in ms.
func measurePosts(ctx context.Context, r *rig, span time.Duration) (took []float64, err error) {
	for end := time.Now().Add(span); time.Now().Before(end) &&
		err == nil; sleepFor(ctx, 20*time.Millisecond) {
		began := time.Now()
		err = postMessage(ctx, r.client, r.handlerURLs()[0],
			message{fmt.Sprint("/beside/", len(took)), 1})
		took = append(took, milliseconds(time.Since(began)))
	}

	return took, errors.Join(err, ctx.Err())
}

// measureStateCosts measures the cost of reading the status of a message in a backlog.
func measureStateCosts(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if err := pauseAllLanes(ctx, r); err != nil {
		return nil, err
	}

	n := b.sizes.crowds.waits.backlog
	if err := fillAtOnce(ctx, r.store, makeMessages("state", n, n), 64, nil); err != nil {
		return nil, err
	}

	id, err := findMessageID(ctx, r, fmt.Sprint("/state/", n*2/3))
	if err != nil {
		return nil, err
	}

	plain, err := measureStateReads(ctx, r, id)
	if err != nil {
		return nil, err
	}

	outlook, err := measureStateReads(ctx, r, id+"?outlook=1")

	return []result{
		newRow(fmt.Sprintf("a state in a backlog of %d: requests to storage", n), "1",
			plain.requests).limitValue(stateRequests).
			withNote("with the outlook %.2f", outlook.requests),
		newRow(fmt.Sprintf("a state in a backlog of %d: CPU time of the handler", n), "ms",
			plain.cpu).withNote("with the outlook %.2f", outlook.cpu),
	}, err
}

// findMessageID returns the id of the key's only message.
func findMessageID(ctx context.Context, r *rig, key string) (id string, err error) {
	err = getURL(ctx, r.client, r.handlerURLs()[0]+"?limit=1&key="+key, func(body io.Reader) error {
		var found struct{ Messages []struct{ ID string } }
		if err := json.NewDecoder(body).Decode(&found); err != nil {
			return err
		}

		if len(found.Messages) != 1 {
			return fmt.Errorf("%d messages of key %s", len(found.Messages), key)
		}

		id = found.Messages[0].ID

		return nil
	})

	return id, err
}

// stateCost is the cost of one status read: table requests (queries and gets), and the handler's
// CPU time in ms.
type stateCost struct{ requests, cpu float64 }

func measureStateReads(ctx context.Context, r *rig, address string) (stateCost, error) {
	before, err := r.readTransactions(ctx)
	if err != nil {
		return stateCost{}, err
	}

	n := r.sizes.crowds.waits.states
	var spent cpuTimes
	err = addCPUTimes(r, &spent, func() error {
		for range n {
			if err := getURL(ctx, r.client, r.handlerURLs()[0]+"/"+address, nil); err != nil {
				return err
			}
		}
		return nil
	})

	after, err2 := r.readTransactions(ctx)
	reads := after["table query"] - before["table query"] + after["table get"] - before["table get"]

	return stateCost{reads / float64(n), spent.handlers * 1000 / float64(n)}, errors.Join(err, err2)
}
