package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/tools/funchost/host"
)

// allAtInformation sets the default log level to Information, as in a host.json without log levels.
// The project's host.json raises the default to Warning and sets Information for each category that
// it names.
const allAtInformation = "AzureFunctionsJobHost__logging__logLevel__default=Information"

// runLogs counts the lines and bytes of the host's log, for a burst and for a trickle (single
// messages with pauses). It counts with the project's host.json, and again with all categories at
// level Information.
func runLogs(ctx context.Context, b *bench) ([]result, error) {
	loud, err := measureLog(ctx, b, allAtInformation)
	if err != nil {
		return nil, fmt.Errorf("all at Information: %w", err)
	}

	quiet, err := measureLog(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("host.json as it is: %w", err)
	}

	return append(logRows("burst", b.sizes.logs.burst, quiet.burst, loud.burst),
		logRows("trickle", b.sizes.logs.trickle, quiet.trickle, loud.trickle)...), nil
}

// logRows returns the rows of a burst or a trickle. The baseline is the log with all categories at
// level Information (loud).
func logRows(name string, messages int, quiet, loud map[string]host.Logged) []result {
	yardstick, value := sumOf(loud, messages), sumOf(quiet, messages)
	return []result{
		newRow("log lines per message, "+name, "", value.lines).withBaseline(yardstick.lines).limitValue(1.1).
			withNote("%d messages; %s; all at Information: %s", messages, linesBy(quiet, messages),
				linesBy(loud, messages)),
		newRow("log bytes per message, "+name, "B", value.bytes).withBaseline(yardstick.bytes).
			withNote("the lines' text alone; all at Information: %s", bytesBy(loud, messages)),
	}
}

// logCounts has the log lines and bytes of a burst and of a trickle, by category.
type logCounts struct{ burst, trickle map[string]host.Logged }

// measureLog posts a burst, waits until the lane is idle, posts a trickle, and waits again. It
// returns the log lines and bytes of the burst and of the trickle. The host's environment contains
// the variables "env".
func measureLog(ctx context.Context, b *bench, env ...string) (out logCounts, err error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: cmsLatency, env: env})
	if err != nil {
		return out, err
	}
	defer r.shutDown()
	begun := r.host.Logged()
	if _, err := r.runBurst(ctx, makeMessages("logs", b.sizes.logs.burst, b.sizes.load.keys)); err != nil {
		return out, err
	}

	between := r.host.Logged()
	r.cms.Reset()
	f := r.newFlow()
	for range b.sizes.logs.trickle {
		if err := f.postNext(ctx, r.receiveURL()); err != nil {
			return out, err
		}
		sleepFor(ctx, b.sizes.trickle.gap)
	}

	if err := f.awaitEnd(ctx); err != nil {
		return out, err
	}

	return logCounts{addedTo(begun, between), addedTo(between, r.host.Logged())}, nil
}

func addedTo(before, after map[string]host.Logged) map[string]host.Logged {
	added := map[string]host.Logged{}
	for category, n := range after {
		was := before[category]
		added[category] = host.Logged{Lines: n.Lines - was.Lines, Bytes: n.Bytes - was.Bytes}
	}
	return added
}

// logVolume has the log's lines and bytes per message.
type logVolume struct{ lines, bytes float64 }

// sumOf returns the sum of all categories, per message.
func sumOf(log map[string]host.Logged, messages int) (sum logVolume) {
	for _, n := range log {
		sum.lines += float64(n.Lines) / float64(messages)
		sum.bytes += float64(n.Bytes) / float64(messages)
	}
	return sum
}

// linesBy returns the lines per message by category, as text for a note.
func linesBy(log map[string]host.Logged, messages int) string {
	return byCategory(log, func(n host.Logged) float64 { return float64(n.Lines) / float64(messages) })
}

// bytesBy returns the bytes per message by category, as text for a note.
func bytesBy(log map[string]host.Logged, messages int) string {
	return byCategory(log, func(n host.Logged) float64 { return float64(n.Bytes) / float64(messages) })
}

// byCategory returns the value of each category that has lines, as text for a note.
func byCategory(log map[string]host.Logged, value func(host.Logged) float64) string {
	var parts []string
	for _, category := range slices.Sorted(maps.Keys(log)) {
		if log[category].Lines > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", category, value(log[category])))
		}
	}
	return strings.Join(parts, ", ")
}
