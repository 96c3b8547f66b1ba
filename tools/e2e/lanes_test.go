package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/lane/epochs"
)

// runLanesCommand runs weir lanes. It returns the standard output followed by the standard error,
// and the exit code.
func (s *system) runLanesCommand(args ...string) (string, int) {
	s.t.Helper()
	e := s.runHandler(s.t.Context(), s.app, nil, append([]string{"lanes"}, args...)...)
	return e.stdout + e.stderr, e.code
}

// changeLanes runs the command weir lanes to change the lanes from one state to another. Then it
// writes the new lanes to weir.yaml, and waits until Weir is healthy.
func (s *system) changeLanes(from, to epochs.Epoch) {
	s.t.Helper()
	out, code := s.runLanesCommand(fmt.Sprint(to.Lanes), "--fold", to.Fold.Flag(), "--json")
	s.t.Logf("weir lanes %s:\n%s", to, out)
	said, asJSON := fmt.Sprintf("The number of lanes is %s now", to),
		fmt.Sprintf(`{"lanes":%d,"epoch":`, to.Lanes)
	if code != 0 || !strings.Contains(out, said) || !strings.Contains(out, asJSON) {
		s.t.Fatalf("exit code %d, want 0, %q and %q", code, said, asJSON)
	}

	path := filepath.Join(s.app, "weir.yaml")
	settings := func(e epochs.Epoch) string {
		return fmt.Sprintf("fold: %s\nlanes: %d ",
			e.Fold, e.Lanes)
	}

	text := strings.Replace(readFile(s.t, path), settings(from),
		fmt.Sprintf("lanes: %d ", from.Lanes), 1)
	writeFile(s.t, path, strings.Replace(text, fmt.Sprintf("lanes: %d ", from.Lanes),
		settings(to), 1), 0o644)
	s.awaitCondition("the handlers run with the new number", 2*time.Minute,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
}

func TestLanes_UpAndDown(t *testing.T) {
	s := newSystem(t, 2, "lanes: 1 ", "lanes: 2 ", "lease: 30s", "lease: 15s", "min: 1s, max: 5m",
		"min: 100ms, max: 200ms")
	s.setFaults(`{"failPath":"/bad"}`)
	bad, err := s.postMessageOnce("/bad", 1, "bad")
	if err != nil {
		t.Fatal(err)
	}

	s.awaitStages([]postedMessage{bad}, "dead", time.Minute)
	messages := s.weir + "/api/messages"
	_, _, soon := s.requestJSON("POST", messages, articleXML("/soon", 1),
		"Weir-Deliver-After", "8s")
	_, _, later := s.requestJSON("POST", messages, articleXML("/later", 1),
		"Weir-Deliver-After", "48h")
	_, _, never := s.requestJSON("POST", messages, articleXML("/never", 1),
		"Weir-Deliver-After", "24h")
	var accepted []postedMessage
	from := epochs.Epoch{Lanes: 2}
	for round, to := range []epochs.Epoch{{Lanes: 5, Fold: fold.All}, {Lanes: 1}} {
		// Clients post during the change, and repeat each post that Weir answers with 503.
		posted := make(chan []postedMessage, 1)
		go func() { posted <- s.postBurstFrom(t.Context(), 8, 25, 1+25*round) }()
		before := s.readStats().Writes
		s.awaitCondition("the lanes move", time.Minute,
			func() bool { return s.readStats().Writes > before+20 })
		s.changeLanes(from, to)
		accepted = append(accepted, <-posted...)
		from = to
	}

	one := func(m map[string]any) string { return messages + "/" + m["id"].(string) }
	if code, _, said := s.requestJSON("PATCH", one(later),
		fmt.Sprintf(`{"deliverAt": %q}`,
			time.Now().Add(time.Second).Format(time.RFC3339Nano))); code != 200 ||
		said["id"] != later["id"] {
		t.Errorf("move by an id of two epochs ago: got %d %v, want 200 and id %v", code, said,
			later["id"])
	}

	if code, _, said := s.requestJSON("DELETE", one(never), ""); code != 200 ||
		said["stage"] != "cancelled" {
		t.Errorf("cancel by an id of two epochs ago: got %d %v, want 200 and stage cancelled",
			code, said)
	}

	for _, m := range []map[string]any{soon, later} {
		accepted = append(accepted,
			postedMessage{ID: m["id"].(string), Key: m["key"].(string), version: 1})
	}

	s.awaitStages(accepted, "delivered", 2*time.Minute)
	st := s.readStats()
	if st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 || st.MaxConcurrent > 5 ||
		len(accepted) != 402 ||
		st.Writes-st.Repeats != 402 {
		t.Errorf("%d messages accepted, the CMS's record is %+v; want 402, each written once, in order and never two "+
			"of a key at once", len(accepted), st)
	}

	if got := getJSON[postedMessage](s, s.weir+"/api/messages/"+bad.ID); got.Stage != "dead" ||
		got.ID != bad.ID ||
		got.Attempts != 5 {
		t.Errorf("the dead message, two epochs later: got %+v, want Stage dead, ID %v and Attempts 5", got, bad.ID)
	}

	for _, m := range []postedMessage{accepted[0], bad} {
		path, version, key := m.Key, 1, "bad"
		if m.ID != bad.ID {
			version = m.version
			key = fmt.Sprintf("%s@%d", path, version)
		}

		again, err := s.postMessageOnce(path, version, key)
		if err != nil || !again.Duplicate || again.ID != m.ID {
			t.Errorf("posted %+v again: got %+v and %v, want a duplicate with the same id", m,
				again, err)
		}
	}
}

func TestLanes_WrongInput(t *testing.T) {
	s := newSystem(t, 1, "lanes: 1 ", "lanes: 2 ")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"0", 2, "must be 1 to 1024"},
		{"-1", 2, "give N, --fold or --undo"},
		{"1025", 2, "must be 1 to 1024"},
		{"many", 2, "is not a number"},
		{"2.5", 2, "is not a number"},
		{"2 3", 2, "at most 1 arg"},
		{"2 --undo", 2, "not both"},
		{"2", 0, "The number of lanes is 2."},
		{"--fold width", 2, `"width" is not one of case, accents, nfc, nor none`},
		{"--fold case --undo", 2, "not both"},
		{"--fold none", 0, "The number of lanes is 2."},
		{"--undo", 0, "no change to undo"},
		{"", 0, "Lanes: 2 (epoch 1)"},
		{"--json", 0, `{"lanes":2,"epoch":1,"setting":2}`},
		{"2 --json", 0, `{"lanes":2,"epoch":1,"setting":2}`},
	} {
		out, code := s.runLanesCommand(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("weir lanes %s: %d, want %v with %q:\n%s", c.args, code, c.code, c.says, out)
		}
	}
}

func TestLanes_InterruptedAndUndone(t *testing.T) {
	s := newSystem(t, 1, "lanes: 1 ", "lanes: 2 ", "lease: 30s", "lease: 15s", "max: 5m", "max: 2s")
	s.setFaults(`{"down":true}`)
	waiting := s.postBurst(t.Context(), 4, 2)
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, "handler"), "lanes", "3")
	cmd.Env = append(append(os.Environ(), s.handlerEnv()...), "FUNCTIONS_APP_ROOT_PATH="+s.app)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	s.awaitCondition("intake is shut", time.Minute, func() bool {
		_, err := s.postMessageOnce("/p/0", 99, "refused")
		return err != nil && strings.Contains(err.Error(), "503") &&
			strings.Contains(err.Error(), "lanes")
	})

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = cmd.Wait() // returns an error, because the test has killed the process

	if out, code := s.runLanesCommand(); code != 0 ||
		!strings.Contains(out, "A change to 3 lanes is under way (drain)") {
		t.Errorf("got %d, want 0 and \"A change to 3 lanes is under way (drain)\":\n%s", code, out)
	}

	if out, code := s.runLanesCommand("--undo"); code != 0 ||
		!strings.Contains(out, "Undone: the number of lanes is 2") {
		t.Fatalf("got %d, want 0 and \"Undone: the number of lanes is 2\":\n%s", code, out)
	}

	s.setFaults(`{}`)
	after, err := s.postMessageOnce("/p/0", 99, "refused")
	if err != nil {
		t.Fatal(err)
	}

	s.awaitStages(append(waiting, after), "delivered", time.Minute)
	if st := s.readStats(); st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 {
		t.Errorf("got %+v, want no duplicate, overlap or inversion", st)
	}
}
