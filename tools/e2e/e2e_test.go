package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTwoInstances_EverythingInOrderOnce(t *testing.T) {
	inEachMode(t, testTwoInstancesEverythingInOrderOnce)
}

func testTwoInstancesEverythingInOrderOnce(t *testing.T) {
	s := newSystem(t, 2)
	accepted := s.postBurst(t.Context(), 10, 20)
	s.awaitStages(accepted, "delivered", time.Minute)
	if st := s.checkRecord(); st.Writes != 200 || st.Repeats != 0 {
		t.Errorf("got %+v, want 200 writes and no repeat", st)
	}

	s.checkHistory(accepted)
}

func TestCMSDown_BurnsNoAttempts(t *testing.T) {
	s := newSystem(t, 1, "max: 5m", "max: 2s")
	s.setFaults(`{"down":true}`)
	accepted := s.postBurst(t.Context(), 5, 4)
	s.awaitCondition("the lane probes", time.Minute,
		func() bool { return s.readStats().Failures >= 3 })
	s.setFaults(`{}`)
	s.awaitStages(accepted, "delivered", time.Minute)

	for _, m := range accepted {
		if got := getJSON[postedMessage](s, s.weir+"/api/messages/"+m.ID); got.Attempts != 1 {
			t.Errorf("got %+v, want 1 attempt", got)
		}
	}

	s.checkRecord()
	s.checkHistory(accepted)
}

func TestStorageRestarted_Every202IsDelivered(t *testing.T) {
	s := newSystemOnOwnStorage(t, 1, "lease: 30s", "lease: 15s")
	posted := make(chan []postedMessage, 1)
	go func() { posted <- s.postBurst(t.Context(), 5, 40) }()
	s.awaitCondition("the lane moves", time.Minute,
		func() bool { return s.readStats().Writes >= 20 })
	if err := s.storage.Stop(); err != nil {
		t.Fatal(err)
	}

	s.awaitCondition("the handler notices", 30*time.Second,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusServiceUnavailable })
	s.storage.restart(t)
	accepted := <-posted
	s.awaitStages(accepted, "delivered", 2*time.Minute)
	if st := s.checkRecord(); len(accepted) != 200 || st.Writes-st.Repeats != 200 {
		t.Errorf("%d accepted, the CMS's record %+v, want 200, each written", len(accepted), st)
	}

	s.checkHistory(accepted)
}

func TestFifthFailure_IsDeadAndOthersGoOn(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 100ms, max: 200ms")
	s.setFaults(`{"failPath":"/bad"}`)
	bad, err := s.postMessageOnce("/bad", 1, "bad")
	if err != nil {
		t.Fatal(err)
	}

	others := s.postBurst(t.Context(), 3, 3)
	s.awaitStages(others, "delivered", time.Minute)
	s.awaitStages([]postedMessage{bad}, "dead", time.Minute)
	s.checkHistory(append(others, bad))
	got := getJSON[postedMessage](s, bad.Location)
	if got.Attempts != 5 || got.CMSStatus != 500 ||
		!strings.Contains(got.LastError, "the index is locked") {
		t.Errorf("got %+v, want 5 attempts, the last answered 500", got)
	}
}

func TestAPI(t *testing.T) { inEachMode(t, testAPI) }

func testAPI(t *testing.T) {
	s := newSystem(t, 1)
	first, err := s.postMessageOnce("/a", 1, "k1")
	if err != nil {
		t.Fatal(err)
	}

	again, err := s.postMessageOnce("/a", 1, "k1")
	if err != nil || !again.Duplicate || again.ID != first.ID || first.Duplicate {
		t.Errorf("first %+v, repeat %+v, %v, want one ID, and only the repeat a duplicate", first,
			again, err)
	}

	if _, err := s.postMessageOnce("/a", 2, "k1"); err == nil ||
		!strings.Contains(err.Error(), "422") {
		t.Errorf("the same key with another body: %v, want an error with \"422\"", err)
	}

	if other, err := s.postMessageOnce("/b", 1, "k1"); err != nil || other.Duplicate {
		t.Errorf("the same key for another ordering key: %+v %v, want Duplicate false and no error",
			other, err)
	}

	if !strings.HasPrefix(first.Location, s.weir+"/api/messages/") {
		t.Errorf("Location %q, want it to begin with %q", first.Location, s.weir+"/api/messages/")
	}

	s.awaitStages([]postedMessage{first}, "delivered", time.Minute)
	large := fmt.Sprintf(`<article path="/large" version="1"><title>L</title><!-- %s --></article>`,
		randomText(300<<10))
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		"NotXML": {"POST", "/api/messages", "application/xml", "<a", 400, `"line":1`},
		"Empty":  {"POST", "/api/messages", "application/xml", "", 400, "the body is empty"},
		"TooLarge": {"POST", "/api/messages", "application/xml",
			"<a>" + strings.Repeat("x", 1<<20) + "</a>", 413, "1048576"},
		"NotXMLType": {"POST", "/api/messages", "application/json", "{}", 415, "XML"},
		"BreaksRules": {"POST", "/api/messages", "application/xml", `<article version="x"/>`, 422,
			`"rule":"number"`},
		"UnknownID": {"GET", "/api/messages/AQABL714SFvJDd7dAA", "", "", 404, "problem"},
		"NoID":      {"GET", "/api/messages/nonsense", "", "", 404, "not a message"},
		"Large": {"POST", "/api/messages", "application/xml", large, 202,
			`"stage":"queued"`},
		"WrongMethodHost": {"PUT", "/api/messages", "application/xml", "<a/>", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(c.method, s.weir+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}

			req.Header.Set("Content-Type", c.kind)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status ||
				!strings.Contains(string(body)+resp.Header.Get("Content-Type"), c.says) {
				t.Errorf("got %d %s %s, want %d with %q", resp.StatusCode,
					resp.Header.Get("Content-Type"), body, c.status, c.says)
			}
		})
	}

	s.awaitCondition("the large one is delivered", time.Minute, func() bool {
		for _, r := range s.readRequests() {
			if r.Path == "/large" && r.Status == http.StatusCreated {
				return true
			}
		}
		return false
	})
}

// randomText returns n characters that compress poorly.
func randomText(n int) string {
	var b strings.Builder
	x := uint32(1)
	for b.Len() < n {
		x = x*1664525 + 1013904223
		b.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[x>>26])
	}
	return b.String()
}
