package e2e_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// searchResult has some fields of the answer to GET /api/messages.
type searchResult struct {
	Messages []struct {
		ID, Stage, Key string
		Size           int
	}
	Complete bool
	Continue string
}

// The API shows why a message waits, and finds messages by stage, key and text.
func TestView(t *testing.T) { inEachMode(t, testView) }

func testView(t *testing.T) {
	s := newSystem(t, 1, "{ min: 1s, max: 5m }", "[20m]")
	s.requestPause("pause", `{"key":"/news/2","reason":"legal"}`, 200, 1)
	s.setFaults(`{"failPath":"/news/1"}`)
	head, id := s.postBody(articleWithTitle("/news/1", 1, "Hello"))
	s.awaitStageAt(head, "retrying")
	behind, _ := s.postBody(articleWithTitle("/news/1", 2, "Grüße"))
	paused, _ := s.postBody(articleWithTitle("/news/2", 1, "Hello"))
	sent, _ := s.postBody(articleWithTitle("/news/3", 1, "Grüße"))
	s.awaitStageAt(sent, "delivered")
	type outlook struct {
		Stage, WaitsFor string
		Position        int
		ExpectedAt      *time.Time
	}

	for address, want := range map[string]outlook{
		head:   {"retrying", "its next attempt at ", 1, nil},
		behind: {"queued", "behind " + id + " of its key, which is retried at ", 2, nil},
		paused: {"queued", "its key is paused: legal", 1, nil}, sent: {"delivered", "", 0, nil},
	} {
		s.awaitCondition("the outlook of "+address, 20*time.Second, func() bool {
			got := getJSON[outlook](s, address+"?outlook=1")
			return got.Stage == want.Stage && strings.HasPrefix(got.WaitsFor, want.WaitsFor) &&
				got.Position == want.Position
		})
	}

	if got := getJSON[outlook](s, head+"?outlook=1").ExpectedAt; got == nil ||
		time.Until(*got) <= 0 {
		t.Errorf("the retry is expected at %v, want a time to come", got)
	}

	l := getJSON[struct {
		laneBalance
		Scheduled, Queued, Retrying int64
		Exact                       bool
		Holder                      string
		OldestWaitingSeconds        float64
	}](s, s.weir+"/api/lanes/0")
	if l.Accepted != 4 || l.Delivered != 1 || l.Retrying != 1 || l.Queued != 2 ||
		l.Scheduled != 0 || !l.Exact ||
		l.Holder == "" || l.OldestWaitingSeconds <= 0 {
		t.Errorf("got %+v, want 4 accepted: 1 delivered, 1 retrying, 2 queued, held by an instance",
			l)
	}

	for query, want := range map[string][]string{
		"": {"/news/3", "/news/2", "/news/1", "/news/1"}, "stage=retrying": {"/news/1"},
		"key=" + url.QueryEscape("/news/1"): {"/news/1", "/news/1"},
		"text=" + url.QueryEscape("GRÜSSE"): nil,
		"text=" + url.QueryEscape("grüße"):  {"/news/3", "/news/1"},
		"stage=dead":                        nil,
	} {
		var keys []string
		next := ""
		for page := 0; page == 0 || next != ""; page++ {
			got := getJSON[searchResult](s, s.weir+"/api/messages?limit=1&"+query+next)
			for _, m := range got.Messages {
				keys = append(keys, m.Key)
			}

			if next = ""; !got.Complete {
				next = "&continue=" + got.Continue
			}
		}

		if fmt.Sprint(keys) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", query, keys, want)
		}
	}
}
