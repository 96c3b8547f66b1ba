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
	waitedPost    = 50.0 // ms, of a post beside answers that are held
	waitedLooks   = 2.0  // queries a second and lane: one look, and what a lane at rest asks besides
	stateRequests = 2.0
)

// waits measures posts beside many answers that are held, what those ask of storage, and what
// the state of a message costs in a backlog.
func waits(ctx context.Context, b *bench) ([]result, error) {
	held, err := b.heldAnswers(ctx)
	if err != nil {
		return nil, fmt.Errorf("held answers: %w", err)
	}
	states, err := b.stateCosts(ctx)
	if err != nil {
		return held, fmt.Errorf("states: %w", err)
	}
	return append(held, states...), nil
}

// heldAnswers pauses all lanes, has answers held, and posts beside them.
func (b *bench) heldAnswers(ctx context.Context) ([]result, error) {
	r, err := b.newRig(ctx, setup{env: []string{smallInstance}})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	if err := r.pauseAll(ctx); err != nil {
		return nil, err
	}
	n, span := b.sizes.crowds.waits, b.sizes.crowds.waitSpan
	var held atomic.Int64
	group, posting := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			pause(posting, span/2/time.Duration(n)*time.Duration(i))
			applied, err := r.postWaiting(posting, fmt.Sprint("/waited/", i), 2*span)
			if applied {
				held.Add(1)
			}
			return err
		})
	}
	if !pause(ctx, span*3/4) {
		return nil, ctx.Err()
	}
	before, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	pause(ctx, span/2)
	after, err := r.transactions(ctx)
	seconds := time.Since(began).Seconds()
	if err != nil {
		return nil, err
	}
	posts, err := r.postTimes(ctx, span/2)
	if err != nil {
		return nil, err
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	peak, err := peakMemory(r.host.Status().Instances[0].PID)
	queries := (after["table query"] - before["table query"]) / seconds
	return []result{
		measured(fmt.Sprintf("%d answers held: a post beside them, p99", n), "ms", percentile(posts, 0.99)).atMost(waitedPost).
			noted("%s; %d were held, each %s", spread(posts), held.Load(), 2*span),
		measured(fmt.Sprintf("%d answers held: queries a second, one lane", n), "1/s", queries).atMost(waitedLooks),
		measured(fmt.Sprintf("%d answers held: peak resident set", n), "MiB", peak).atMost(residentLimit).noted("%s", smallInstance),
	}, err
}

func (r *rig) pauseAll(ctx context.Context) error {
	return r.command(ctx, "/pause", `{"all": true, "reason": "bench"}`)
}

// command sends JSON to the first handler itself.
func (r *rig) command(ctx context.Context, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at(r.host.Status().Instances[0])+"/api"+path,
		strings.NewReader(body))
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

// postWaiting posts a message that is not delivered, and reports whether its answer was held.
func (r *rig) postWaiting(ctx context.Context, path string, wait time.Duration) (applied bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.direct()[0],
		strings.NewReader(message{path, 1}.body()))
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

// postTimes posts one message after the other for a while, and returns how long each took, in ms.
func (r *rig) postTimes(ctx context.Context, span time.Duration) (took []float64, err error) {
	for end := time.Now().Add(span); time.Now().Before(end) && err == nil; pause(ctx, 20*time.Millisecond) {
		began := time.Now()
		err = post(ctx, r.client, r.direct()[0], message{fmt.Sprint("/beside/", len(took)), 1})
		took = append(took, ms(time.Since(began)))
	}
	return took, errors.Join(err, ctx.Err())
}

// stateCosts reads the state of a message in the middle of a backlog.
func (b *bench) stateCosts(ctx context.Context) ([]result, error) {
	r, err := b.newRig(ctx, setup{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	if err := r.pauseAll(ctx); err != nil {
		return nil, err
	}
	n := b.sizes.crowds.stateBacklog
	if err := fillAtOnce(ctx, r.store, messages("state", n, n), 64, nil); err != nil {
		return nil, err
	}
	id, err := r.idOf(ctx, fmt.Sprint("/state/", n*2/3))
	if err != nil {
		return nil, err
	}
	plain, err := r.readStates(ctx, id)
	if err != nil {
		return nil, err
	}
	outlook, err := r.readStates(ctx, id+"?outlook=1")
	return []result{
		measured(fmt.Sprintf("a state in a backlog of %d: requests to storage", n), "1", plain.requests).atMost(stateRequests).
			noted("with the outlook %.2f", outlook.requests),
		measured(fmt.Sprintf("a state in a backlog of %d: CPU time of the handler", n), "ms", plain.cpu).noted("with the outlook %.2f", outlook.cpu),
	}, err
}

// idOf finds a waiting message by its key.
func (r *rig) idOf(ctx context.Context, key string) (id string, err error) {
	err = get(ctx, r.client, r.direct()[0]+"?limit=1&key="+key, func(body io.Reader) error {
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

// stateCost is what one read of a state takes.
type stateCost struct{ requests, cpu float64 }

func (r *rig) readStates(ctx context.Context, address string) (stateCost, error) {
	before, err := r.transactions(ctx)
	if err != nil {
		return stateCost{}, err
	}
	n := r.sizes.crowds.states
	var spent effort
	err = r.work(&spent, func() error {
		for range n {
			if err := get(ctx, r.client, r.direct()[0]+"/"+address, nil); err != nil {
				return err
			}
		}
		return nil
	})
	after, err2 := r.transactions(ctx)
	reads := after["table query"] - before["table query"] + after["table get"] - before["table get"]
	return stateCost{reads / float64(n), spent.handlers * 1000 / float64(n)}, errors.Join(err, err2)
}
