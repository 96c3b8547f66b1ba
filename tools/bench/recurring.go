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

	"weir/tools/democms/server"
)

const (
	recurringInstances = 4
	recurringSchedules = 10
)

// recurring lets several instances run the same schedules, which all of them know: each
// occurrence must come once. Then the same while instances are killed.
func recurring(ctx context.Context, b *bench) ([]result, error) {
	alive, err := b.recur(ctx, "recurring", 0)
	if err != nil {
		return alive, err
	}
	killed, err := b.recur(ctx, "recurring, instances killed", b.sizes.recurringKills)
	if err != nil {
		err = fmt.Errorf("instances killed: %w", err)
	}
	return append(alive, killed...), err
}

// recur runs all occurrences, during which so many handlers are killed, and judges them.
func (b *bench) recur(ctx context.Context, name string, kills int) ([]result, error) {
	r, err := b.newRig(ctx, setup{lanes: dueLanes, latency: dueLatency, lease: takeoverLease})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	from := time.Now().Add(b.sizes.recurringLead).Truncate(time.Second)
	until := from.Add(time.Duration(b.sizes.recurring/recurringSchedules) * time.Second)
	if err := r.schedule(ctx, from, until); err != nil {
		return nil, err
	}
	// Those that start now read the schedules, so that all instances have timers for them.
	if err := r.addInstances(ctx, recurringInstances-1); err != nil {
		return nil, err
	}
	if late := time.Since(from); late > 0 {
		return nil, fmt.Errorf("the instances were ready %s after the first occurrence", late)
	}
	used, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.killInTurn(ctx, kills, from, until); err != nil {
		return nil, err
	}
	n := b.sizes.recurring
	if err := errors.Join(r.delivered(ctx, n), r.atRest(ctx, burstLimit)); err != nil {
		return nil, err
	}
	after, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	o := occurred(r.cms.Requests(), from, until)
	row := measured(name+": missed or doubled", "", float64(o.missed+o.doubled)).atMost(0).
		noted("%d occurrences of %d schedules on %d instances: %d missed, %d doubled; from due to the CMS: %s", n, recurringSchedules, recurringInstances, o.missed, o.doubled, spread(o.late))
	if kills > 0 {
		row.Note += fmt.Sprintf("; %d instances were killed, which made %d repeats", kills, r.cms.Stats().Repeats)
		return []result{row}, errors.Join(o.err(), r.cleanBut(n, kills*uncommitted))
	}
	used = minus(after, used)
	return []result{row, measured(name+": transactions per occurrence", "", total(used)/float64(n)).noted("all instances: %s", shares(used, n))}, errors.Join(o.err(), r.clean(n))
}

// schedule puts schedules that are due each second.
func (r *rig) schedule(ctx context.Context, from, until time.Time) error {
	for i := range recurringSchedules {
		if err := r.putSchedule(ctx, fmt.Sprint("tick", i), occurrence(i, "{{.DueAt}}"), from, until); err != nil {
			return err
		}
	}
	return nil
}

// putSchedule puts one that is due each second, and whose message has this path.
func (r *rig) putSchedule(ctx context.Context, name, path string, from, until time.Time) error {
	text, err := json.Marshal(map[string]any{"cron": "@every 1s", "start": from, "end": until, "missed": "all",
		"message": fmt.Sprintf(`<article path="%s" version="{{.Run}}"><title>T</title></article>`, path)})
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

// occurrence is the path of one occurrence's message.
func occurrence(schedule int, due string) string { return fmt.Sprintf("/tick/%d/%s", schedule, due) }

// addInstances scales out and waits until all handlers are ready.
func (r *rig) addInstances(ctx context.Context, n int) error {
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
	return r.ready(ctx)
}

// killInTurn kills handlers, one after the other, at even distances of a time; the host
// restarts them.
func (r *rig) killInTurn(ctx context.Context, kills int, from, until time.Time) error {
	step := until.Sub(from) / time.Duration(kills+1)
	for i := range kills {
		if !pause(ctx, time.Until(from.Add(time.Duration(i+1)*step))) {
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

// occurrences is what the CMS got of a number of schedules.
type occurrences struct {
	missed, doubled int
	late            []float64 // ms
	early           []error
}

// occurred holds the CMS's record against the schedules. An occurrence is doubled when two
// messages came of it: a repeat after a crash has the same id.
func occurred(requests []server.Request, from, until time.Time) occurrences {
	var o occurrences
	seen := map[string]map[string]bool{} // ids by path
	for _, req := range requests {
		if seen[req.Path] == nil {
			seen[req.Path] = map[string]bool{}
		}
		var schedule int
		var text string
		if _, err := fmt.Sscanf(req.Path, "/tick/%d/%s", &schedule, &text); err != nil {
			o.early = append(o.early, fmt.Errorf("the CMS got %q", req.Path))
			continue
		}
		due, err := time.Parse(time.RFC3339, text)
		if err != nil || req.StartedAt.Before(due) {
			o.early = append(o.early, fmt.Errorf("%s came at %s", req.Path, req.StartedAt.Format(time.RFC3339Nano)))
		}
		if len(seen[req.Path]) == 0 {
			o.late = append(o.late, ms(req.StartedAt.Sub(due)))
		}
		seen[req.Path][req.ID] = true
	}
	for i := range recurringSchedules {
		for due := from; due.Before(until); due = due.Add(time.Second) {
			switch n := len(seen[occurrence(i, due.UTC().Format(time.RFC3339))]); n {
			case 0:
				o.missed++
			default:
				o.doubled += n - 1
			}
		}
	}
	return o
}

func (o occurrences) err() error {
	if o.missed+o.doubled > 0 {
		return errors.Join(append(o.early, fmt.Errorf("%d occurrences were missed and %d doubled", o.missed, o.doubled))...)
	}
	return errors.Join(o.early...)
}
