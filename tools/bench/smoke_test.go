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

	"weir/internal/democms"
	"weir/internal/testkit/azurite"
)

// TestMain runs a baseline instead of the tests if the bench started this process as a baseline.
// See runAsYardstick.
func TestMain(m *testing.M) {
	was, err := runAsYardstick(context.Background())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}

	os.Exit(m.Run())
}

// tiny has sizes that show whether a scenario works. The measured values mean nothing.
var tiny = sizes{
	load:   loadSizes{burst: 40, clients: 4, keys: 8, warm: 10, trips: 5},
	accept: acceptSizes{10, 100}, posts: []postSize{{1 << 10, 4, 400}, {1 << 20, 2, 16}},
	consume: 400, fast: 40, cpu: 400, logs: logSizes{burst: 20, trickle: 3},
	trickle: trickleSizes{4, 100 * time.Millisecond},
	pair: pairSizes{trickle: 4, backOff: time.Millisecond, idle: time.Second, wakes: 2,
		rest:   time.Millisecond,
		outage: time.Second, outages: 1},
	idle:    idleSizes{backOff: time.Millisecond, wakes: 2},
	backlog: backlogSizes{short: 20, long: 40, inMemory: 40}, takeovers: 1,
	due:       dueSizes{messages: 20, lead: 2 * time.Second, span: 2 * time.Second, killed: 8},
	retry:     retrySizes{4, 40 * time.Millisecond},
	scheduled: scheduledSizes{messages: 20, inMemory: 40, burst: 20, rounds: 2},
	recurring: recurringSizes{occurrences: 20, lead: 5 * time.Second, kills: 1},
	groups:    groupSizes{burst: 500, flow: 5, due: 10}, cold: coldSizes{[]int{1, 5}, 2}, recipe: 4,
	chains: chainSizes{burst: 10, signedIn: 40}, serve: serveSizes{rate: 100, messages: 200},
	crowds: crowdSizes{
		due:       dueRateSizes{[]int{5}, 2 * time.Second},
		moment:    momentSizes{[]int{20}, 2 * time.Second},
		schedules: scheduleSizes{3, 3 * time.Second}, refused: refusedSizes{bad: 1, good: 3},
		aside:     asideSizes{behind: 40, large: 4, lead: 10 * time.Second},
		retention: oldSizes{lanes: 2, each: 10}, sweep: oldSizes{lanes: 4, each: 2},
		tickets: ticketSizes{lanes: 4, instances: []int{1, 2}, span: 3 * time.Second},
		hang:    hangSizes{posts: 3, span: time.Second, flow: 4 * time.Second},
		memory:  memorySizes{posts: 3, searched: 20, searches: 3, hung: 3},
		waits:   waitSizes{answers: 20, span: 2 * time.Second, states: 20, backlog: 100},
	},
}

// benchCase is some scenarios that run with small sizes, and the rows of their results.
type benchCase struct {
	delay     time.Duration // of storage
	scenarios string
	rows      []string
}

// away ends the names of rows that were measured with delayed storage.
const away = ", storage at 2ms"

// TestBench runs the scenarios that measure one lane and due times. TestLong_Bench runs the others.
func TestBench(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]benchCase{
		"Near": {0, "serial,logs,retry,supersede",
			[]string{"serial burst", "transactions per message, serial burst",
				"log lines per message, burst", "log bytes per message, burst",
				"log lines per message, trickle",
				"log bytes per message, trickle",
				"retry: lateness p50, live instance", "retry: lateness p99, live instance",
				"retry: lateness max, live instance", "writes that reach the CMS with supersede"}},
		"Due": {2 * time.Millisecond, "lanes,duelane,duemoment,everysecond",
			[]string{"burst on 8 lanes" + away, "burst on 8 lanes: writers busy" + away,
				"due, one lane, 5 a second: lateness p50" + away,
				"due, one lane, 5 a second: lateness p95" + away,
				"due, one lane, 5 a second: lateness p99" + away,
				"due, one lane, 5 a second: lateness max" + away,
				"20 due at one moment: until the first is sent" + away,
				"20 due at one moment: writes a second" + away,
				"20 due at one moment: lag of plain messages, max" + away,
				"3 schedules of one second: occurrences written a second" + away,
				"3 schedules of one second: longest standstill of the lane" + away,
				"3 schedules of one second: lag of plain messages, max" + away}},
	})
}

// runCases runs scenarios end to end, with real handlers, Azurite, the demo CMS and a stand-in for
// the Functions host. The cases with a delay run with delayed storage.
func runCases(t *testing.T, cases map[string]benchCase) {
	t.Helper()
	app := filepath.Join(t.TempDir(), "app")
	if out, err := exec.Command("make", "-C", filepath.Join("..", ".."), "build",
		"APP="+app).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}

	storage, err := azurite.Start(t.Context(), azurite.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := storage.Stop(); err != nil {
			t.Error(err)
		}
	})

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runScenarios(t, app, storage, c.delay, c.scenarios, c.rows)
		})
	}
}

// runScenarios runs the named scenarios with tiny sizes on the given storage, and checks that the
// file of results has the expected rows.
func runScenarios(t *testing.T, app string, storage *azurite.Process, delay time.Duration,
	names string, rows []string) {
	t.Helper()
	dir := t.TempDir()
	var progress bytes.Buffer
	b, stop, err := newBench(app, dir, tiny, &progress)
	if err != nil {
		t.Fatal(err)
	}

	b.openStorage = shareStorage(storage)

	chosen, err := chooseScenarios(names)
	if err == nil {
		err = b.runPasses(t.Context(), chosen, []time.Duration{delay})
	}

	if err := stop(); err != nil {
		t.Error(err)
	}

	if err != nil {
		t.Fatalf("measure: %v\n%s", err, progress.String())
	}

	file := filepath.Join(dir, "bench.json")
	if err := writeJSON(file, b.results); err != nil {
		t.Fatal(err)
	}

	checkRows(t, file, rows...)
}

// shareStorage returns a function that returns the same storage for each scenario.
func shareStorage(p *azurite.Process) func(context.Context) (*azurite.Process, func() error,
	error) {
	return func(context.Context) (*azurite.Process, func() error, error) {
		return p, func() error { return nil }, nil
	}
}

// checkRows checks that the file has exactly the named rows in order. Each row must have all fields
// and a value above 0. Only the number of instances that the queue asks for, and the number of
// requests at rest, can be 0.
func checkRows(t *testing.T, file string, names ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != len(names) {
		t.Fatalf("got %d rows, %v, want %d and no error:\n%s", len(rows), err, len(names), text)
	}

	for i, row := range rows {
		mayBeZero := strings.Contains(names[i], "instances the queue asks for") ||
			strings.Contains(names[i], "requests to storage a minute")
		if v, ok := row["value"].(float64); row["name"] != names[i] || !ok || v < 0 ||
			v == 0 && !mayBeZero {
			t.Errorf("got the row %v, want %s with a value", row, names[i])
		}

		for _, field := range []string{"unit", "baseline", "ratio", "target", "delay"} {
			if _, ok := row[field]; !ok {
				t.Errorf("%s: got the row %v, want the field %s", names[i], row, field)
			}
		}
	}
}

func TestMeasureLateness(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cms := democms.New(0, 0)
	for _, path := range []string{"/late", "/down"} {
		body := message{path, 1}.articleBody()
		cms.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequest("POST", "/api/content", strings.NewReader(body)))
	}

	moments := dueTimes{{"/late", 1}: now.Add(-time.Hour), {"/down", 1}: now.Add(-2 * time.Hour)}
	late, err := measureLateness(cms, moments, now.Add(-time.Minute))
	if err != nil || len(late) != 2 || late[0] < 60_000 || late[1] > 3_600_000 {
		t.Errorf("got %v, %v, want two times, of more than a minute and less than an hour", late,
			err)
	}

	moments[message{"/late", 1}] = now.Add(time.Hour)
	if _, err := measureLateness(cms, moments, time.Time{}); err == nil ||
		!strings.Contains(err.Error(), "/late came") {
		t.Errorf("early write: got %v, want an error with \"/late came\"", err)
	}
}

func TestCountOccurrences(t *testing.T) {
	t.Parallel()
	from := time.Now().Truncate(time.Second).Add(-time.Minute)
	var requests []democms.Request
	for i := range recurringSchedules {
		requests = append(requests, democms.Request{ID: fmt.Sprint(i),
			Path:      occurrencePath(i, from.UTC().Format(time.RFC3339)),
			StartedAt: from.Add(time.Millisecond)})
	}

	until := from.Add(time.Second)
	repeat := slices.Concat(requests[:recurringSchedules], requests[:1])
	if o := countOccurrences(repeat, from, until); o.checkCounts() != nil ||
		len(o.late) != recurringSchedules {
		t.Errorf("repeats of one id: got %+v, want none missed or doubled", o)
	}

	if o := countOccurrences(requests[1:], from, until); o.missed != 1 || o.checkCounts() == nil {
		t.Errorf("one is missing: got %+v, want it counted and refused", o)
	}

	second := requests[0]
	second.ID = "other"
	if o := countOccurrences(append(requests, second), from, until); o.doubled != 1 ||
		o.checkCounts() == nil {
		t.Errorf("one is double: got %+v, want it counted and refused", o)
	}

	requests[0].StartedAt = from.Add(-time.Millisecond)
	if o := countOccurrences(requests, from, until); o.checkCounts() == nil {
		t.Errorf("one is early: got %+v, want it refused", o)
	}
}

func TestChooseScenarios(t *testing.T) {
	t.Parallel()
	all, err := chooseScenarios("")
	if err != nil || len(all) < 10 {
		t.Errorf("%d scenarios, %v, want at least 10 and no error", len(all), err)
	}

	some, err := chooseScenarios("recipe,serial")
	if err != nil || len(some) != 2 || some[0].name != "serial" {
		t.Errorf("got %v, %v, want serial and recipe", some, err)
	}

	if _, err := chooseScenarios("serial,serail"); err == nil ||
		!strings.Contains(err.Error(), "serail") {
		t.Errorf("error %v, want an error with \"serail\"", err)
	}
}

func TestMessage_ArticleBody(t *testing.T) {
	t.Parallel()
	m := message{"/a/1", 7}
	if body := m.articleBody(); len(body) != bodySize || !strings.HasSuffix(body, "</article>") {
		t.Errorf("%d bytes: %s, want %v bytes that end with \"</article>\"", len(body),
			body, bodySize)
	}
}

func TestLabelValue(t *testing.T) {
	t.Parallel()
	labels := `{operation="lease-acquire",service="blob"}`
	if labelValue(labels, "operation") != "lease-acquire" ||
		labelValue(labels, "service") != "blob" ||
		labelValue(labels, "lane") != "" {
		t.Errorf("read %q, %q, %q from %s, want lease-acquire, blob and an empty value",
			labelValue(labels, "operation"), labelValue(labels, "service"),
			labelValue(labels, "lane"), labels)
	}
}
