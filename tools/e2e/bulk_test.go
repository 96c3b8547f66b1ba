package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// replayJob has the fields of a bulk replay's state that the tests read.
type replayJob struct {
	ID, State, StopReason                    string
	Matched, Replayed, Refused, Skipped      int
	Delivered, DeadAgain, Otherwise, Waiting int
}

// The CMS rejects all messages, and later accepts messages again. A bulk replay then delivers each
// message in order per key, although the test kills both handlers. After a kill, the next holder of
// a lane is allowed to repeat a write.
func TestBulkReplay_HandlersKilled(t *testing.T) {
	s := newSystem(t, 2, "lanes: 1 ", "lanes: 2 ", "lease: 30s", "lease: 15s")
	s.setFaults(`{"rejectText":"Version"}`)
	dead := s.postBurst(t.Context(), 6, 10)
	s.awaitStages(dead, "dead", time.Minute)
	s.setFaults(`{}`)

	const inJSON = "application/json"
	replays := s.weir + "/api/replays"
	other, _, said := s.requestJSON("POST", replays,
		`{"filter":{"contract":"delete"},"dryRun":true}`, "Content-Type", inJSON)
	if other != 200 || said["count"] != 0.0 {
		t.Errorf("of another contract: %d %v, want 200 and count 0", other, said)
	}

	code, _, plan := s.requestJSON("POST", replays,
		`{"filter":{"contract":"article"},"dryRun":true,"ratePerMinute":120}`,
		"Content-Type", inJSON)
	if code != 200 || plan["count"] != 60.0 || plan["keys"] != 6.0 || plan["refused"] != 0.0 ||
		plan["complete"] != true || plan["estimatedSeconds"] != 30.0 {
		t.Errorf("plan: %d %v, want 200, count 60, keys 6, refused 0, complete true and estimatedSeconds 30", code,
			plan)
	}

	if st := s.readStats(); st.Writes != 0 {
		t.Fatalf("a plan wrote: %+v, want Writes 0", st)
	}

	code, _, begun := s.requestJSON("POST", replays,
		`{"filter":{"contract":"article"},"ratePerMinute":120,"reason":"the CMS is mended"}`,
		"Content-Type", inJSON)
	if code != 202 || begun["state"] != "running" || begun["reason"] != "the CMS is mended" {
		t.Fatalf("got %d %v, want 202 and a running replay", code, begun)
	}

	one := replays + "/" + begun["id"].(string)
	if out, code := s.runLanesCommand("3"); code != 1 {
		t.Errorf("weir lanes in a running replay: exit code %d, want 1: %s", code, out)
	}

	for kill := range 2 {
		s.awaitCondition("it moves", 2*time.Minute,
			func() bool { return s.readStats().Writes >= 10+20*kill })
		s.killNext(kill)
	}

	var j replayJob
	s.awaitCondition("it is done", 4*time.Minute, func() bool {
		resp, err := http.Get(one) // an error means that the test has killed this handler
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&j) == nil &&
			j.State != "running"
	})

	if j.State != "done" || j.Matched != 60 || j.Replayed != 60 || j.Delivered != 60 ||
		j.Refused+j.Skipped+j.DeadAgain+
			j.Otherwise+j.Waiting != 0 {
		t.Errorf("got %+v, want all 60 replayed and delivered", j)
	}

	s.awaitStages(dead, "delivered", 10*time.Second)
	st := s.readStats()
	if st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 || st.Writes-st.Repeats != 60 {
		t.Errorf("the CMS's record: %+v, want 60 writes besides repeats, in order", st)
	}

	if all := getJSON[struct{ Replays []replayJob }](s, replays).Replays; len(all) != 1 ||
		all[0] != j {
		t.Errorf("the list of replays: got %+v, want the one that was read", all)
	}

	if code, _, said := s.requestJSON("DELETE", one, ""); code != 409 {
		t.Errorf("cancelled though it is done: %d %v, want 409", code, said)
	}
}

// The first bulk replay stops by itself, because the CMS still rejects the messages. The test
// cancels the second bulk replay.
func TestBulkReplay_StoppedAndCancelled(t *testing.T) {
	s := newSystem(t, 1)
	s.setFaults(`{"rejectText":"Version"}`)
	dead := s.postBurst(t.Context(), 4, 10)
	s.awaitStages(dead, "dead", time.Minute)
	begin := func(body string) string {
		t.Helper()
		code, _, said := s.requestJSON("POST", s.weir+"/api/replays", body, "Content-Type",
			"application/json")
		if code != 202 {
			t.Fatalf("got %d %v, want 202", code, said)
		}
		return fmt.Sprint(s.weir, "/api/replays/", said["id"])
	}

	var j replayJob
	one := begin(`{"filter":{},"ratePerMinute":600}`)
	s.awaitCondition("it is stopped", time.Minute,
		func() bool { j = getJSON[replayJob](s, one); return j.State != "running" })
	if j.State != "stopped" || j.StopReason == "" || j.DeadAgain < 10 || j.Delivered != 0 {
		t.Errorf("got %+v, want stopped with a reason, 10 or more dead again", j)
	}

	s.awaitStages(dead, "dead", time.Minute)
	s.setFaults(`{}`)
	one = begin(`{"filter":{},"ratePerMinute":60}`)
	s.awaitCondition("it moves", time.Minute, func() bool { return s.readStats().Writes >= 2 })
	code, _, said := s.requestJSON("DELETE", one, "")
	if code != 200 || said["state"] != "cancelled" {
		t.Errorf("got %d %v, want 200 and cancelled", code, said)
	}

	asked := int(said["replayed"].(float64))
	s.awaitCondition("the replayed messages are delivered", time.Minute,
		func() bool { return s.readStats().Writes >= asked })

	// A third replay delivers the messages of one key. If the cancelled replay still ran, the CMS
	// would also get messages of other keys.
	key := ""
	for _, m := range dead {
		if now := getJSON[struct{ Stage, Key string }](s, s.weir+"/api/messages/"+m.ID); now.Stage == "dead" {
			key = now.Key
		}
	}

	one = begin(fmt.Sprintf(`{"filter":{"key":%q},"ratePerMinute":180}`, key))
	s.awaitCondition("another is done", time.Minute,
		func() bool { j = getJSON[replayJob](s, one); return j.State != "running" })
	if j.State != "done" || j.Replayed == 0 || j.Delivered != j.Replayed {
		t.Errorf("got %+v, want done, and all that was replayed delivered", j)
	}

	// The cancelled replay can have replayed one more message before the cancellation took effect.
	if st := s.checkRecord(); st.Writes-asked-j.Replayed > 1 || st.Writes < asked+j.Replayed ||
		st.Writes >= len(dead) {
		t.Errorf("%d and %d were asked for, want as many writes: %+v", asked, j.Replayed, st)
	}
}
