package write_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
)

// dead implements the interfaces of write.Replay and write.Edit, for one dead message in lane 2.
type dead struct {
	message weir.Message
	asked   []lane.ReplayOptions // the options of the requested replays
	called  int                  // the number of calls of Call with lane 2
}

func newDead() *dead {
	return &dead{message: weir.Message{ID: weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"},
		Contract: "article", Key: "/a", Version: "3"}}
}

func (d *dead) newStatus() weir.Status {
	m := d.message
	m.Replays = 1
	return weir.Status{Message: m, Stage: weir.Dead, ReplayRefused: "too late", EditedAt: now(),
		EditNote: "a title"}
}

func (d *dead) Status(context.Context, weir.ID) (weir.Status, error) { return d.newStatus(), nil }

func (d *dead) Replay(_ context.Context, id weir.ID, o lane.ReplayOptions) (weir.Status, error) {
	if id != d.message.ID {
		return weir.Status{}, &weir.Error{Kind: weir.Conflict,
			Message: "a later message of its key was delivered"}
	}
	d.asked = append(d.asked, o)
	return d.newStatus(), nil
}

// Accept parses a body of the form "contract key version".
func (d *dead) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	words := strings.Fields(string(body))
	if len(words) != 3 {
		return weir.Message{}, &weir.Error{Kind: weir.Malformed, Message: "not XML"}
	}
	return weir.Message{Contract: words[0], Key: words[1], Version: words[2],
		ContentType: contentType, Body: body}, nil
}

func (d *dead) Ring(lane int) {
	if lane == 2 {
		d.called++
	}
}

// postChange posts a change. The strings in header are names and values, alternately.
func (d *dead) postChange(address, body string, header ...string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.Handle("/api/messages/{id}/replay", &write.Replay{Log: d, Waker: d, Logger: quiet})
	mux.Handle("/api/messages/{id}/edit", &write.Edit{Contracts: d, Messages: d, Log: d, Waker: d,
		Intake: httpio.NewIntake(1, 100), MaxBody: 100,
		Logger: quiet})
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/api/messages/"+address,
		strings.NewReader(body))
	r.Header.Set("Content-Type", "text/xml")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	mux.ServeHTTP(w, r)

	return w
}

// An edit has no due time, so a due time that is sent with it must not be ignored.
func TestEdit_RefusesHeadersOfAPost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		status      int
	}{{"Weir-Deliver-At", "2030-01-31T08:00:00Z", 400}, {"Deliver-At", "2030-01-31T08:00:00Z", 400},
		{"Content-Encoding", "gzip", 400}, {"Content-Encoding", "br", 415},
		{"Content-Encoding", "identity", 202}} {
		d := newDead()
		w := d.postChange(d.message.ID.String()+"/edit", "article /a 4", c.name, c.value)
		if w.Code != c.status || (c.status == 202) != (len(d.asked) == 1) {
			t.Errorf("%s: %s: got %d %s and %d replays; want %d, and a replay only if 202", c.name,
				c.value, w.Code, w.Body, len(d.asked), c.status)
		}
	}
}

// A packed correction is unpacked within maxBody.
func TestEdit_UnpacksGzip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{"good": {ziptest.Gzip("article /a 4"), 202}, "bomb": {ziptest.Bomb(), 413},
		"over maxBody": {ziptest.Gzip("article /a 4" + strings.Repeat(" ", 200)), 413}} {
		d := newDead()
		w := d.postChange(d.message.ID.String()+"/edit", string(c.body), "Content-Encoding", "gzip")
		if w.Code != c.status || (c.status == 202) != (len(d.asked) == 1) {
			t.Errorf("%s: got %d %s and %d replays; want %d, and a replay only if 202", name, w.Code,
				w.Body, len(d.asked), c.status)
		}
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	id, other := newDead().message.ID.String(),
		weir.ID{Epoch: 1, Seq: 9, Nonce: "00112233445566778899"}.String()
	for address, c := range map[string]struct {
		status int
		force  bool
	}{
		id + "/replay":             {202, false},
		id + "/replay?force=true":  {202, true},
		id + "/replay?force=false": {202, false},
		id + "/replay?force=maybe": {400, false},
		other + "/replay":          {409, false},
		"nonsense/replay":          {404, false},
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			d := newDead()
			w := d.postChange(address, "")
			if w.Code != c.status || (c.status == 202) != (len(d.asked) == 1) ||
				len(d.asked) != d.called {
				t.Fatalf("got %d %s, the replays %+v and %d calls; want %d, and one replay and one call only if 202",
					w.Code, w.Body,
					d.asked, d.called, c.status)
			}

			if c.status != 202 {
				return
			}

			if o := d.asked[0]; o.Force != c.force || o.Edit != nil {
				t.Errorf("got the replay %+v, want Force %v and no Edit", o, c.force)
			}

			var got struct {
				ID, Stage, ReplayRefused string
				Replays                  int
				Edited                   struct {
					At   time.Time
					Note string
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.ID != id ||
				got.Stage != "dead" ||
				got.Replays != 1 || got.ReplayRefused != "too late" ||
				!got.Edited.At.Equal(now()) || got.Edited.Note != "a title" {
				t.Errorf("got %s, %v, want the dead message %s with its refusal and its edit",
					w.Body, err, id)
			}
		})
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	id := newDead().message.ID.String()
	for name, c := range map[string]struct {
		query, body string
		status      int
		part        string // a part of the answer
	}{
		"corrected":        {"", "article /a 4", 202, ""},
		"by force":         {"?force=true", "article /a 4", 202, ""},
		"with a note":      {"?note=%20typo%20", "article /a 4", 202, ""},
		"another key":      {"", "article /b 4", 422, `its key is \"/b\"`},
		"another contract": {"", "picture /a 4", 422, `the contract \"picture\"`},
		"not XML":          {"", "x", 400, "not XML"},
		"too large": {"", strings.Repeat("x", 101), 413,
			"over 100 bytes (maxBody in weir.yaml)"},
		"a long note": {"?note=" + strings.Repeat("x", 501), "article /a 4", 400,
			"may have 500"},
		"force": {"?force=2", "article /a 4", 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDead()
			w := d.postChange(id+"/edit"+c.query, c.body)
			if w.Code != c.status || (c.status == 202) != (len(d.asked) == 1) ||
				len(d.asked) != d.called ||
				!strings.Contains(w.Body.String(), c.part) {
				t.Fatalf("got %d %s, the replays %+v and %d calls; want %d with %q, and one replay and one call only "+
					"if 202", w.Code, w.Body, d.asked, d.called, c.status, c.part)
			}

			if c.status != 202 {
				return
			}

			o := d.asked[0]
			if e := o.Edit; e == nil || string(e.Body) != c.body || e.ContentType != "text/xml" ||
				e.Version != "4" ||
				(e.Note == "typo") != (name == "with a note") || o.Force != (name == "by force") {
				t.Errorf("got the replay %+v with the edit %+v; want the body %q, version 4, and the options of "+
					"the address", o,
					e, c.body)
			}
		})
	}
}
