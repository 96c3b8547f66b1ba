//go:build long

package main

import (
	"testing"
	"time"
)

// TestLong_Bench runs the scenarios that TestBench leaves out. Each case starts systems of
// its own.
func TestLong_Bench(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]benchCase{
		"Crowds": {2 * time.Millisecond, "refused,aside,retention,sweep,tickets", []string{
			"1 messages answered 403 in front of 3 good ones: until these are delivered" + away,
			"1 messages answered 500 in front of 3 good ones: until these are delivered" + away,
			"memory, 40 messages behind a blocked key: peak resident set" + away,
			"memory, 4 messages of 200 KiB due at one moment: peak resident set" + away,
			"retention over 2 lanes: messages removed a second" + away,
			"retention: transactions per message" + away,
			"a sweep over 4 lanes, longest of 3" + away,
			"tickets, 4 busy lanes, 1 instances: most in the queue" + away,
			"tickets, 4 busy lanes, 1 instances: instances the queue asks for" + away,
			"tickets, 4 busy lanes, 2 instances: most in the queue" + away,
			"tickets, 4 busy lanes, 2 instances: instances the queue asks for" + away}},
		"Pair": {0, "two,pairburst,pairidle,back", []string{
			"accept to CMS p50, two instances in turn", "accept to CMS p99, two instances in turn",
			"accept to CMS p50, the instance without the lane",
			"accept to CMS p99, the instance without the lane", "serial burst, two instances",
			"transactions per message, serial burst, two instances",
			"listener stand-in, serial burst, two instances",
			"idle, two instances, requests to storage a minute",
			"first message after idle, two instances, worst",
			"CMS back after 1s of 503, 1 instances: until the first write, worst",
			"CMS back after 1s of 503, 2 instances: until the first write, worst"}},
		"Posts": {0, "posts", []string{"post of 1 KiB: accept latency p50",
			"post of 1 KiB: CPU of the handler", "post of 1 MiB: accept latency p50",
			"post of 1 MiB: CPU of the handler"}},
		"Consume": {0, "consume", []string{"consume rate from RabbitMQ, lane paused"}},
		"Batch":   {0, "batch", []string{"parts of a batch filed, lane paused"}},
		"Files":   {0, "files", []string{"files taken from the inbox, lane paused"}},
		"CPU": {0, "cpu", []string{"CPU of the handler per message",
			"CPU of the handler per message, against a bare program"}},
		"Chains": {0, "chains", []string{"chains of three steps, serial burst",
			"chains with tokens of 2 s: tokens fetched", "chains that remember the id: requests",
			"chains that remember the id: serial burst"}},
		"Cold": {2 * time.Millisecond, "coldstart",
			[]string{"cold start, 1 lanes: exec to the first 202" + away,
				"cold start, 5 lanes: exec to the first 202" + away}},
		"Serve": {0, "serve", []string{"weir serve: exec to the first 202",
			"weir serve: accept latency p50, one client",
			"weir serve: accept rate, 64 clients, lane paused",
			"weir serve: serial burst", "weir serve: resident at rest",
			"weir serve: resident after 200 messages",
			"weir serve: exec to the first 202 with 200 messages"}},
		"Hang": {2 * time.Millisecond, "hang",
			[]string{"storage hangs: until a post is refused, max" + away,
				"one storage request hangs: the lane's standstill, max" + away}},
	})
}
