package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// listNearNames returns names that a program could take for a name: by case, Unicode, blanks, a
// part of the text, a pattern, a path or an escape.
func listNearNames(name string) []string {
	escaped := ""
	for i := range len(name) {
		escaped += fmt.Sprintf("%%%02x", name[i])
	}

	half, last := name[:len(name)/2], len(name)-1
	names := []string{strings.ToUpper(name), strings.ToLower(name),
		strings.ToUpper(name[:1]) + name[1:],
		norm.NFC.String(name), norm.NFD.String(name), name + "\u0301",
		name + "\u00a0", name + "\u200b", "\ufeff" + name,
		name + " x", name + "\x00", name + "\nx", name + "/", "/" + name, "./" + name, name + "/.",
		"../" + name,
		name + "/../" + name, name + "x", name + ".", name + ";", name + "#", name + "?x=1",
		name + "%00", name + "\\",
		name[:last], name[1:], half, half + "*", half + "%", name[:last] + "_", name[:last] + "?",
		"*", "%", "..",
		"'" + name + "'", `"` + name + `"`, name + "' or '1' eq '1",
		url.PathEscape(name), url.QueryEscape(name), escaped,
		strings.ReplaceAll(name, "o", "0"), strings.ReplaceAll(name, "o", "\u043e"),
		strings.ReplaceAll(name, "-", "\u2011"), strings.ReplaceAll(name, "-", "_")}

	slices.Sort(names)

	return slices.DeleteFunc(slices.Compact(names), func(near string) bool { return near == name })
}

// namedThing is a thing that requests find by its name.
type namedThing struct {
	// create makes the thing, and returns its name.
	create func(h *repeatingHost) string
	// requests are the requests that find it: method and address, with %s for the escaped name.
	requests [][2]string
	// read is the address of the thing, and has is a part of that answer while the thing is
	// unchanged.
	read, has string
}

var namedThings = map[string]namedThing{
	"Message": {
		create: func(h *repeatingHost) string { return h.postScheduled() },
		requests: [][2]string{{"GET", "/api/messages/%s"}, {"GET", "/api/messages/%s/body"},
			{"DELETE", "/api/messages/%s"}, {"POST", "/api/messages/%s/cancel"},
			{"POST", "/api/messages/%s/erase"}, {"POST", "/api/messages/%s/replay"}},
		read: "/api/messages/%s", has: `"stage":"scheduled"`,
	},
	"Schedule": {
		create: func(h *repeatingHost) string { h.putSchedule("news-go", false); return "news-go" },
		requests: [][2]string{{"GET", "/api/schedules/%s"}, {"DELETE", "/api/schedules/%s"},
			{"POST", "/api/schedules/%s/run"}},
		read: "/api/schedules/%s", has: `"name":"news-go"`,
	},
	"Batch": {
		create: func(h *repeatingHost) string {
			return h.must("POST", "/api/batches?split=/f/article", `<f><article path="/b"/></f>`,
				"Content-Type", "application/xml")
		},
		requests: [][2]string{{"GET", "/api/batches/%s"}, {"DELETE", "/api/batches/%s"}},
		read:     "/api/batches/%s", has: `"id":`,
	},
	"BulkReplay": {
		create: func(h *repeatingHost) string {
			return h.must("POST", "/api/replays", `{"filter":{}}`, "Content-Type",
				"application/json")
		},
		requests: [][2]string{{"GET", "/api/replays/%s"}, {"DELETE", "/api/replays/%s"}},
		read:     "/api/replays/%s", has: `"id":`,
	},
}

// No request finds a thing by another name than its own.
func TestNames_AreCompared(t *testing.T) {
	t.Parallel()
	for name, thing := range namedThings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newRepeatingHost(t)
			own := thing.create(h)
			for _, near := range listNearNames(own) {
				for _, r := range thing.requests {
					a := h.call("near", r[0], fmt.Sprintf(r[1], url.PathEscape(near)), "")
					if a.status/100 == 2 {
						t.Errorf("%s of %q: got %d %s, want no success", r[0], near,
							a.status, a.text)
					}
				}
			}

			if a := h.call("own", "GET", fmt.Sprintf(thing.read, own), ""); !strings.Contains(
				a.text, thing.has) {
				t.Errorf("%s: got %d %s, want it unchanged", own, a.status, a.text)
			}
		})
	}
}

// A pause holds back the messages of its own key only, and only its own key ends it.
func TestNames_PausedKey(t *testing.T) {
	t.Parallel()
	h := newRepeatingHost(t)
	const key = "/news-go"
	h.must("POST", "/api/pause", `{"key":"`+key+`","reason":"r"}`, "Content-Type",
		"application/json")
	post := func(path string) (id string, a answer) {
		escaped := strings.NewReplacer("&", "&amp;", `"`, "&quot;", "\n", "&#10;").Replace(path)
		a = h.call("post"+path, "POST", "/api/messages", `<article path="`+escaped+`"/>`,
			"Content-Type", "application/xml")
		id, _ = a.body["id"].(string)
		return id, a
	}

	own, _ := post(key)

	for _, near := range listNearNames(key) {
		body, err := json.Marshal(map[string]string{"key": near})
		if err != nil {
			t.Fatal(err)
		}

		h.call("resume"+near, "POST", "/api/resume", string(body), "Content-Type",
			"application/json")
		id, a := post(near)
		switch {
		case a.status == http.StatusUnprocessableEntity,
			a.status == http.StatusBadRequest: // no key
		case a.status != http.StatusAccepted || a.body["key"] == key:
			t.Errorf("%q: got %d %s, want a message of its own key", near, a.status, a.text)
		default:
			h.await("/api/messages/"+id,
				func(m map[string]any) bool { return m["stage"] == "delivered" })
		}
	}

	if a := h.call("own", "GET", "/api/messages/"+own, ""); a.body["stage"] != "queued" {
		t.Errorf("the paused message: got %s, want it queued", a.text)
	}

	h.must("POST", "/api/resume", `{"key":"`+key+`"}`, "Content-Type", "application/json")
	h.await("/api/messages/"+own, func(m map[string]any) bool { return m["stage"] == "delivered" })
}

// Neither another Idempotency-Key nor another ordering key makes a post a repeat.
func TestNames_IdempotencyKey(t *testing.T) {
	t.Parallel()
	h := newRepeatingHost(t)
	post := func(path, key string) answer {
		return h.call("post"+path+key, "POST", "/api/messages", `<article path="`+path+`"/>`,
			"Content-Type", "application/xml", "Idempotency-Key", key)
	}

	own := post("/news-go", "order-go")
	if again := post("/news-go", "order-go"); again.body["id"] != own.body["id"] {
		t.Fatalf("got %s, want a repeat of %s", again.text, own.text)
	}

	for _, near := range listNearNames("order-go") {
		if a := post("/news-go", near); a.body["id"] == own.body["id"] {
			t.Errorf("Idempotency-Key %q: got %s, want another message or none", near, a.text)
		}
	}

	for _, near := range listNearNames("/news-go") {
		if a := post(strings.ReplaceAll(near, `"`, "&quot;"), "order-go"); a.body["id"] ==
			own.body["id"] {
			t.Errorf("key %q: got %s, want another message or none", near, a.text)
		}
	}
}
