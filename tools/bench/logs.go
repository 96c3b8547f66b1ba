package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/tools/funchost/host"
)

// allAtInformation lets everything through that has level Information, as a host.json does that sets
// no level.
const allAtInformation = "AzureFunctionsJobHost__logging__logLevel__default=Information"

// logs counts the lines that a burst, and a trickle, leave in the log of the host: with host.json as it
// is, and with everything at Information.
func logs(ctx context.Context, b *bench) ([]result, error) {
	loud, err := b.logOf(ctx, allAtInformation)
	if err != nil {
		return nil, fmt.Errorf("all at Information: %w", err)
	}
	quiet, err := b.logOf(ctx)
	if err != nil {
		return nil, fmt.Errorf("host.json as it is: %w", err)
	}
	return append(logRows("burst", b.sizes.logged, quiet.burst, loud.burst),
		logRows("trickle", b.sizes.loggedTrickle, quiet.trickle, loud.trickle)...), nil
}

func logRows(name string, messages int, quiet, loud map[string]host.Logged) []result {
	before, after := sumOf(loud, messages), sumOf(quiet, messages)
	return []result{
		measured("log lines per message, "+name, "", after.lines).against(before.lines).atMost(1.1).
			noted("%d messages; %s; all at Information: %s", messages, linesBy(quiet, messages), linesBy(loud, messages)),
		measured("log bytes per message, "+name, "B", after.bytes).against(before.bytes).
			noted("the lines' text alone; all at Information: %s", bytesBy(loud, messages)),
	}
}

// logged is what was logged of messages that came at once, and one by one, by category.
type logged struct{ burst, trickle map[string]host.Logged }

// logOf returns the log of both, each until the lane is at rest.
func (b *bench) logOf(ctx context.Context, env ...string) (out logged, err error) {
	r, err := b.newRig(ctx, setup{latency: cmsLatency, env: env})
	if err != nil {
		return out, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return out, err
	}
	begun := r.host.Logged()
	if _, err := r.burst(ctx, messages("logs", b.sizes.logged, b.sizes.keys)); err != nil {
		return out, err
	}
	between := r.host.Logged()
	r.cms.Reset()
	f := r.newFlow()
	for range b.sizes.loggedTrickle {
		if err := f.post(ctx, r.receive()); err != nil {
			return out, err
		}
		pause(ctx, b.sizes.gap)
	}
	if err := f.end(ctx); err != nil {
		return out, err
	}
	return logged{addedTo(begun, between), addedTo(between, r.host.Logged())}, nil
}

func addedTo(before, after map[string]host.Logged) map[string]host.Logged {
	added := map[string]host.Logged{}
	for category, n := range after {
		was := before[category]
		added[category] = host.Logged{Lines: n.Lines - was.Lines, Bytes: n.Bytes - was.Bytes}
	}
	return added
}

// volume is what a message leaves in the log, on average.
type volume struct{ lines, bytes float64 }

func sumOf(log map[string]host.Logged, messages int) (sum volume) {
	for _, n := range log {
		sum.lines += float64(n.Lines) / float64(messages)
		sum.bytes += float64(n.Bytes) / float64(messages)
	}
	return sum
}

// linesBy shows the lines per message by category, for a note.
func linesBy(log map[string]host.Logged, messages int) string {
	return byCategory(log, func(n host.Logged) float64 { return float64(n.Lines) / float64(messages) })
}

func bytesBy(log map[string]host.Logged, messages int) string {
	return byCategory(log, func(n host.Logged) float64 { return float64(n.Bytes) / float64(messages) })
}

func byCategory(log map[string]host.Logged, value func(host.Logged) float64) string {
	var parts []string
	for _, category := range slices.Sorted(maps.Keys(log)) {
		if log[category].Lines > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", category, value(log[category])))
		}
	}
	return strings.Join(parts, ", ")
}
