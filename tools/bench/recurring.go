package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"weir/internal/democms"
)

const (
	recurringInstances = 4
	recurringSchedules = 10
)

// runRecurring runs the same schedules on several instances: Weir must accept exactly one message
// for each occurrence. A second measurement also kills handlers.
func runRecurring(ctx context.Context, b *bench) ([]result, error) {
	alive, err := measureRecurring(ctx, b, "recurring", 0)
	if err != nil {
		return alive, err
	}

	killed, err := measureRecurring(ctx, b, "recurring, instances killed", b.sizes.recurring.kills)
	if err != nil {
		err = fmt.Errorf("instances killed: %w", err)
	}

	return append(alive, killed...), err
}

// measureRecurring waits for all occurrences, kills the given number of handlers meanwhile, and
// checks the CMS's record.
func measureRecurring(ctx context.Context, b *bench, name string, kills int) ([]result, error) {
	r, err := b.newWarmRig(ctx,
		rigOptions{lanes: dueLanes, latency: dueLatency, lease: takeoverLease})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	from := time.Now().Add(b.sizes.recurring.lead).Truncate(time.Second)
	until := from.Add(time.Duration(b.sizes.recurring.occurrences/recurringSchedules) * time.Second)
	if err := putTickSchedules(ctx, r, from, until); err != nil {
		return nil, err
	}

	// Each new instance reads the schedules at its start, so that all instances have timers for the
	// schedules.
	if err := addInstances(ctx, r, recurringInstances-1); err != nil {
		return nil, err
	}

	if late := time.Since(from); late > 0 {
		return nil, fmt.Errorf("the instances were ready %s after the first occurrence was due",
			late)
	}

	used, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	if err := killInTurn(ctx, r, kills, from, until); err != nil {
		return nil, err
	}

	n := b.sizes.recurring.occurrences
	if err := errors.Join(r.awaitDelivered(ctx, n), r.awaitRest(ctx)); err != nil {
		return nil, err
	}

	after, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	o := countOccurrences(r.cms.Requests(), from, until)
	row := newRow(name+": missed or doubled", "", float64(o.missed+o.doubled)).limitValue(0).
		withNote("%d occurrences of %d schedules on %d instances: %d missed, %d doubled; from due to the CMS: %s", n,
			recurringSchedules, recurringInstances, o.missed, o.doubled, describeSpread(o.late))

	if kills > 0 {
		row.Note += fmt.Sprintf("; %d instances were killed, which made %d repeats", kills,
			r.cms.Stats().Repeats)
		return []result{row}, errors.Join(o.checkCounts(),
			r.checkRecordWithRepeats(n, kills*uncommitted))
	}

	used = subtractCounts(after, used)

	return []result{row, newRow(name+": transactions per occurrence", "",
			sumCounts(used)/float64(n)).withNote("all instances: %s", describeShares(used, n))},
		errors.Join(o.checkCounts(), r.checkRecord(n))
}

func putTickSchedules(ctx context.Context, r *rig, from, until time.Time) error {
	for i := range recurringSchedules {
		if err := putSchedule(ctx, r, fmt.Sprint("tick", i), occurrencePath(i, "{{.DueAt}}"), from, until); err != nil {
			return err
		}
	}
	return nil
}

// putSchedule puts a schedule that is due each second from "from" to "until". The path of the
// schedule's messages can be a template.
func putSchedule(ctx context.Context, r *rig, name, path string, from, until time.Time) error {
	text, err := json.Marshal(map[string]any{"cron": "@every 1s", "start": from, "end": until,
		"missed": "all",
		"message": fmt.Sprintf(`<article path="%s" version="{{.Run}}"><title>T</title></article>`,
			path)})
	if err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.host.URL()+"/api/schedules/"+name,
		bytes.NewReader(text))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}

	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("put a schedule: %s", resp.Status)
	}

	return nil
}

// occurrencePath returns the path of an occurrence's message. The argument due is a time or a
// template.
func occurrencePath(schedule int, due string) string {
	return fmt.Sprintf("/tick/%d/%s", schedule, due)
}

// addInstances adds n instances, and waits until all handlers are ready.
func addInstances(ctx context.Context, r *rig, n int) error {
	for range n {
		resp, err := r.client.Post(r.host.URL()+"/admin/host/instances", "", nil)
		if err != nil {
			return err
		}

		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("add an instance: %s", resp.Status)
		}
	}

	return r.awaitReady(ctx)
}

// killInTurn kills handlers, one after the other, at equal intervals between "from" and "until".
// The host replaces each killed handler.
func killInTurn(ctx context.Context, r *rig, kills int, from, until time.Time) error {
	step := until.Sub(from) / time.Duration(kills+1)
	for i := range kills {
		if !sleepFor(ctx, time.Until(from.Add(time.Duration(i+1)*step))) {
			return ctx.Err()
		}

		instances := r.host.Status().Instances
		if pid := instances[i%len(instances)].PID; pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err
			}
		}
	}

	return nil
}

// occurrenceCounts is the result of countOccurrences.
type occurrenceCounts struct {
	missed   int       // occurrences without a message
	doubled  int       // messages beyond the first one of an occurrence
	late     []float64 // lateness in ms: from an occurrence's due time to its first request
	problems []error   // requests before the due time, and requests for other paths
}

// countOccurrences compares the requests at the CMS with the occurrences that are due at "from" or
// later, and before "until". An occurrence with two message ids counts as doubled. A further
// request with the same id does not count, because a crash can cause such a repeat.
func countOccurrences(requests []democms.Request, from, until time.Time) occurrenceCounts {
	var o occurrenceCounts
	seen := map[string]map[string]bool{} // message ids by path
	for _, req := range requests {
		if seen[req.Path] == nil {
			seen[req.Path] = map[string]bool{}
		}

		var schedule int
		var text string
		if _, err := fmt.Sscanf(req.Path, "/tick/%d/%s", &schedule, &text); err != nil {
			o.problems = append(o.problems, fmt.Errorf("the CMS got %q", req.Path))
			continue
		}

		due, err := time.Parse(time.RFC3339, text)
		if err != nil || req.StartedAt.Before(due) {
			o.problems = append(o.problems, fmt.Errorf("%s came at %s", req.Path,
				req.StartedAt.Format(time.RFC3339Nano)))
		}

		if len(seen[req.Path]) == 0 {
			o.late = append(o.late, milliseconds(req.StartedAt.Sub(due)))
		}

		seen[req.Path][req.ID] = true
	}

	for i := range recurringSchedules {
		for due := from; due.Before(until); due = due.Add(time.Second) {
			switch n := len(seen[occurrencePath(i, due.UTC().Format(time.RFC3339))]); n {
			case 0:
				o.missed++
			default:
				o.doubled += n - 1
			}
		}
	}

	return o
}

// checkCounts returns an error if there are missed occurrences, doubled occurrences or problems.
func (o occurrenceCounts) checkCounts() error {
	if o.missed+o.doubled > 0 {
		return errors.Join(append(o.problems,
			fmt.Errorf("%d occurrences were missed and %d doubled", o.missed, o.doubled))...)
	}
	return errors.Join(o.problems...)
}
