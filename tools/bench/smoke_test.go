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
	"strings"
	"testing"
	"time"

	"weir/tools/cms/server"
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
	latencies: 10, rate: 100, trickle: 4, gap: 100 * time.Millisecond, backOff: time.Millisecond, wakes: 2,
	short: 20, long: 40, longMemory: 40, takeovers: 1, recipe: 4,
	due: 20, dueLead: 2 * time.Second, dueSpan: 2 * time.Second, dueKilled: 8, retries: 4, retryGap: 40 * time.Millisecond,
	scheduled: 20, scheduledMemory: 40, scheduledBurst: 20, scheduledRounds: 2,
	recurring: 20, recurringLead: 5 * time.Second, recurringKills: 1}

// TestBench runs a burst end to end: a real handler under the host's stand-in, Azurite,
// and the demo CMS.
func TestBench(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("make", "-C", filepath.Join("..", ".."), "build", "APP="+filepath.Join(dir, "app")).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	var progress bytes.Buffer
	b, stop, err := newBench(t.Context(), filepath.Join(dir, "app"), dir, tiny, &progress)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := choose("serial,retry,supersede")
	if err == nil {
		err = b.runAll(t.Context(), chosen)
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
	checkRows(t, file, "serial burst", "transactions per message, serial burst",
		"retry: lateness p50, live instance", "retry: lateness p99, live instance", "retry: lateness max, live instance", "writes that reach the CMS with supersede")
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
		if v, _ := row["value"].(float64); row["name"] != names[i] || v <= 0 {
			t.Errorf("row %v", row)
		}
		for _, field := range []string{"unit", "baseline", "ratio", "target"} {
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
	repeat := append(requests[:recurringSchedules:recurringSchedules], requests[0])
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
