package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/tools/democms/server"
)

// TestMain lets the test binary be the yardsticks' process, as the program does.
func TestMain(m *testing.M) {
	was, err := beYardstick(context.Background())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny is enough to see that a scenario works; its figures mean nothing.
var tiny = sizes{burst: 40, clients: 4, keys: 8, warm: 10, trips: 5, fast: 40,
	latencies: 10, rate: 100, cpu: 40, logged: 20, loggedTrickle: 3, trickle: 4, gap: 100 * time.Millisecond, backOff: time.Millisecond, wakes: 2,
	short: 20, long: 40, longMemory: 40, takeovers: 1, recipe: 4,
	due: 20, dueLead: 2 * time.Second, dueSpan: 2 * time.Second, dueKilled: 8, groupBurst: 500, groupFlow: 5, groupDue: 10, retries: 4, retryGap: 40 * time.Millisecond,
	scheduled: 20, scheduledMemory: 40, scheduledBurst: 20, scheduledRounds: 2,
	recurring: 20, recurringLead: 5 * time.Second, recurringKills: 1, coldLanes: []int{1, 5}, coldStarts: 2,
	crowds: crowdSizes{dueRates: []int{5}, dueSpan: 2 * time.Second, moments: []int{20}, momentLead: 2 * time.Second,
		schedules: 3, schedulesSpan: 3 * time.Second, refused: 1, good: 3, behind: 40, large: 4, largeLead: 10 * time.Second,
		oldLanes: 2, old: 10, sweptLanes: 4, sweptOld: 2, busyLanes: 4, busyInstances: []int{1, 2}, busySpan: 3 * time.Second,
		hungPosts: 3, hungSpan: time.Second, hungFlow: 4 * time.Second,
		heavyPosts: 3, searched: 20, searches: 3, hungLarge: 3, waits: 20, waitSpan: 2 * time.Second, states: 20, stateBacklog: 100}}

// TestBench runs scenarios end to end, with storage near and away: real handlers under the
// host's stand-in, Azurite, and the demo CMS.
func TestBench(t *testing.T) {
	t.Parallel()
	app := filepath.Join(t.TempDir(), "app")
	if out, err := exec.Command("make", "-C", filepath.Join("..", ".."), "build", "APP="+app).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	const away = ", storage at 2ms"
	for name, c := range map[string]struct {
		delay     time.Duration
		scenarios string
		rows      []string
	}{
		"Near": {0, "serial,logs,retry,supersede", []string{"serial burst", "transactions per message, serial burst",
			"log lines per message, burst", "log bytes per message, burst", "log lines per message, trickle", "log bytes per message, trickle",
			"retry: lateness p50, live instance", "retry: lateness p99, live instance", "retry: lateness max, live instance", "writes that reach the CMS with supersede"}},
		"Due": {2 * time.Millisecond, "lanes,duelane,duemoment,everysecond", []string{"burst on 8 lanes" + away, "burst on 8 lanes: writers busy" + away,
			"due, one lane, 5 a second: lateness p50" + away, "due, one lane, 5 a second: lateness p95" + away, "due, one lane, 5 a second: lateness p99" + away, "due, one lane, 5 a second: lateness max" + away,
			"20 due at one moment: until the first is sent" + away, "20 due at one moment: writes a second" + away, "20 due at one moment: lag of plain messages, max" + away,
			"3 schedules of one second: occurrences written a second" + away, "3 schedules of one second: longest standstill of the lane" + away, "3 schedules of one second: lag of plain messages, max" + away}},
		"Crowds": {2 * time.Millisecond, "refused,aside,retention,sweep,tickets", []string{
			"1 messages answered 403 in front of 3 good ones: until these are delivered" + away, "1 messages answered 500 in front of 3 good ones: until these are delivered" + away,
			"memory, 40 messages behind a blocked key: peak resident set" + away, "memory, 4 messages of 200 KiB due at one moment: peak resident set" + away,
			"retention over 2 lanes: messages removed a second" + away, "retention: transactions per message" + away, "a sweep over 4 lanes, longest of 3" + away,
			"tickets, 4 busy lanes, 1 instances: most in the queue" + away, "tickets, 4 busy lanes, 1 instances: instances the queue asks for" + away,
			"tickets, 4 busy lanes, 2 instances: most in the queue" + away, "tickets, 4 busy lanes, 2 instances: instances the queue asks for" + away}},
		"Cold": {2 * time.Millisecond, "coldstart", []string{"cold start, 1 lanes: exec to the first 202" + away, "cold start, 5 lanes: exec to the first 202" + away}},
		"Hang": {2 * time.Millisecond, "hang", []string{"storage hangs: until a post is refused, max" + away, "one storage request hangs: the lane's standstill, max" + away}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runScenarios(t, app, c.delay, c.scenarios, c.rows)
		})
	}
}

// runScenarios runs some with tiny sizes, and holds the file they make against the rows expected.
func runScenarios(t *testing.T, app string, away time.Duration, names string, rows []string) {
	t.Helper()
	dir := t.TempDir()
	var progress bytes.Buffer
	b, stop, err := newBench(t.Context(), app, dir, tiny, &progress)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := choose(names)
	if err == nil {
		err = b.runPasses(t.Context(), chosen, []time.Duration{away})
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	file := filepath.Join(dir, "bench.json")
	if err := writeJSON(file, b.results); err != nil {
		t.Fatal(err)
	}
	checkRows(t, file, rows...)
}

// checkRows holds the file against the names expected: every row has figures.
func checkRows(t *testing.T, file string, names ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != len(names) {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, row := range rows {
		mayBeNone := strings.Contains(names[i], "instances the queue asks for")
		if v, ok := row["value"].(float64); row["name"] != names[i] || !ok || v < 0 || v == 0 && !mayBeNone {
			t.Errorf("row %v", row)
		}
		for _, field := range []string{"unit", "baseline", "ratio", "target", "delay"} {
			if _, ok := row[field]; !ok {
				t.Errorf("%s: %s is missing", names[i], field)
			}
		}
	}
}

func TestLateness(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cms := server.New(0, 0)
	for _, path := range []string{"/late", "/down"} {
		body := message{path, 1}.body()
		cms.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/api/content", strings.NewReader(body)))
	}
	moments := appointments{{"/late", 1}: now.Add(-time.Hour), {"/down", 1}: now.Add(-2 * time.Hour)}
	late, err := lateness(cms, moments, now.Add(-time.Minute))
	if err != nil || len(late) != 2 || late[0] < 60_000 || late[1] > 3_600_000 {
		t.Errorf("%v, %v", late, err)
	}
	moments[message{"/late", 1}] = now.Add(time.Hour)
	if _, err := lateness(cms, moments, time.Time{}); err == nil || !strings.Contains(err.Error(), "/late came") {
		t.Errorf("too early: %v", err)
	}
}

func TestOccurred(t *testing.T) {
	t.Parallel()
	from := time.Now().Truncate(time.Second).Add(-time.Minute)
	var requests []server.Request
	for i := range recurringSchedules {
		requests = append(requests, server.Request{ID: fmt.Sprint(i), Path: occurrence(i, from.UTC().Format(time.RFC3339)), StartedAt: from.Add(time.Millisecond)})
	}
	until := from.Add(time.Second)
	repeat := slices.Concat(requests[:recurringSchedules], requests[:1])
	if o := occurred(repeat, from, until); o.err() != nil || len(o.late) != recurringSchedules {
		t.Errorf("%+v", o)
	}
	if o := occurred(requests[1:], from, until); o.missed != 1 || o.err() == nil {
		t.Errorf("one is missing: %+v", o)
	}
	second := requests[0]
	second.ID = "other"
	if o := occurred(append(requests, second), from, until); o.doubled != 1 || o.err() == nil {
		t.Errorf("one is double: %+v", o)
	}
	requests[0].StartedAt = from.Add(-time.Millisecond)
	if o := occurred(requests, from, until); o.err() == nil {
		t.Errorf("one is early: %+v", o)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	all, err := choose("")
	if err != nil || len(all) < 10 {
		t.Errorf("%d scenarios, %v", len(all), err)
	}
	some, err := choose("recipe,serial")
	if err != nil || len(some) != 2 || some[0].name != "serial" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := choose("serial,serail"); err == nil || !strings.Contains(err.Error(), "serail") {
		t.Errorf("error %v", err)
	}
}

func TestMessageBody(t *testing.T) {
	t.Parallel()
	m := message{"/a/1", 7}
	if body := m.body(); len(body) != bodySize || !strings.HasSuffix(body, "</article>") {
		t.Errorf("%d bytes: %s", len(body), body)
	}
}

func TestLabel(t *testing.T) {
	t.Parallel()
	labels := `{operation="lease-acquire",service="blob"}`
	if label(labels, "operation") != "lease-acquire" || label(labels, "service") != "blob" || label(labels, "lane") != "" {
		t.Error("labels are misread")
	}
}
