package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/democms"
)

const (
	badSpace  = "/bad/"  // prefix of the paths of messages that the CMS refuses
	goodSpace = "/good/" // prefix of the paths of the good messages
	// refusedLimit is the longest wait for the good messages.
	refusedLimit = 90 * time.Second
)

// runRefused measures how long good messages wait if the CMS refuses many earlier messages. It
// measures refusals with status 403 and with status 500. Each message has a key of its own.
func runRefused(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, c := range []struct {
		status int
		faults democms.Faults
	}{{403, democms.Faults{RefuseUnder: badSpace}}, {500, democms.Faults{FailUnder: badSpace}}} {
		row, err := measureBehindRefused(ctx, b, c.status, c.faults)
		if err != nil {
			return rows, fmt.Errorf("%d: %w", c.status, err)
		}
		rows = append(rows, row)
	}

	return rows, nil
}

// measureBehindRefused fills the lane before the handler starts: first with messages that the CMS
// refuses, then with good messages. It measures the time from the start of the first request at the
// CMS to the end of the last write of a good message.
func measureBehindRefused(ctx context.Context, b *bench, status int,
	faults democms.Faults) (result, error) {
	n, good := b.sizes.crowds.refused.bad, b.sizes.crowds.refused.good
	r, err := b.newRig(ctx, rigOptions{latency: dueLatency,
		beforeHost: func(ctx context.Context, r *rig) error {
			r.cms.SetFaults(faults)
			if err := fillInOrder(ctx, r, makeMessages(strings.Trim(badSpace, "/"), n, n)); err !=
				nil {
				return err
			}
			return fillInOrder(ctx, r, makeMessages(strings.Trim(goodSpace, "/"), good, good))
		}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	late := r.awaitCondition(ctx, refusedLimit, "the good messages are written",
		func() bool { return r.cms.Stats().Writes >= good })
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}

	requests := requestsWithin(r.cms.Requests(), time.Time{}, time.Now())
	if len(requests) == 0 {
		return result{}, fmt.Errorf("the CMS got nothing within %s", refusedLimit)
	}

	waited := refusedLimit
	if late == nil {
		waited = 0
		for _, req := range requests {
			if strings.HasPrefix(req.Path, goodSpace) {
				waited = max(waited, req.EndedAt.Sub(requests[0].StartedAt))
			}
		}
	}

	return newRow(fmt.Sprintf("%d messages answered %d in front of %d good ones: until these are delivered", n, status,
		good), "s", waited.Seconds()).limitValue(10).
		withNote("%d of %d were delivered within %s; the CMS refused %d requests",
			r.cms.Stats().Writes, good, refusedLimit, r.cms.Stats().Failures), nil
}
