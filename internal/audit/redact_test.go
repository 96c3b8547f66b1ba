package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// recordAll records an entry of each detail, one second after the other.
func recordAll(t *testing.T, l *audit.Log, c *clock, entries ...audit.Entry) {
	t.Helper()
	for _, e := range entries {
		c.now = c.now.Add(time.Second)
		l.Record(t.Context(), e)
	}
}

// detailsOf returns the details of all entries, oldest first.
func detailsOf(t *testing.T, l *audit.Log) (details []string) {
	t.Helper()
	for _, e := range readAll(t, l, audit.Query{Limit: 500}) {
		details = append([]string{e.Detail}, details...)
	}
	return details
}

// erase redacts the entries of an erased message.
func erase(t *testing.T, l *audit.Log, id, key string) {
	t.Helper()
	if err := l.Redact(t.Context(), id, lane.ErasedKey(key)); err != nil {
		t.Fatalf("erasure of %s with the key %q: got %v, want no error", id, key, err)
	}
}

// An erasure replaces whole keys in the fields that hold keys, and removes the parameters of
// changes of the message. Nothing else changes, however often the erasure is asked for.
func TestLog_Redact(t *testing.T) {
	t.Parallel()
	hash := lane.ErasedKey("/jane")
	cases := []struct {
		subject, detail, want string
		isRedacted            bool
	}{
		{"", `{"key":"/jane","reason":"r"}`, `{"key":"` + hash + `","reason":"r"}`, true},
		{"id1", `{"note":"wrong address"}`, ``, true},
		{"", `{"filter":{"key":"/jane"},"ratePerMinute":9007199254740993}`,
			`{"filter":{"key":"` + hash + `"},"ratePerMinute":9007199254740993}`, true},
		{"", `{"filter":{"keyPrefix":"/jane"}}`, `{"filter":{"keyPrefix":"` + hash + `"}}`, true},
		{"", `{"keys":["/john","/jane","/jane/2"]}`,
			`{"keys":["/john","` + hash + `","/jane/2"]}`, true},
		{"", `{"filter":{"keyPrefix":"/jane/"}}`, `{"filter":{"keyPrefix":"/jane/"}}`, false},
		{"", `{"filter":{"keyPrefix":"/"}}`, `{"filter":{"keyPrefix":"/"}}`, false},
		{"", `{"key":"/john","reason":"/jane"}`, `{"key":"/john","reason":"/jane"}`, false},
		{"id2", `{"note":"/jane"}`, `{"note":"/jane"}`, false},
		{"/jane", `{"cron":"/jane","note":"<&>"}`, `{"cron":"/jane","note":"<&>"}`, false},
		// another spelling is another key, with folding, too
		{"", `{"key":"/Jane"}`, `{"key":"/Jane"}`, false},
		{"", `{"keys":["/jáne"]}`, `{"keys":["/jáne"]}`, false},
		{"", `no JSON of /jane`, `no JSON of /jane`, false},
	}

	l, c, _ := newLog(t)
	for _, one := range cases {
		recordAll(t, l, c, audit.Entry{Action: "change", Subject: one.subject, Detail: one.detail,
			KeyID: "3fa9c2d1"})
	}

	first := c.now.Add(time.Hour)
	for range 3 {
		c.now = c.now.Add(time.Hour)
		erase(t, l, "id1", "/jane")
		got := readAll(t, l, audit.Query{Limit: 100})
		if len(got) != len(cases) {
			t.Fatalf("got %d entries, want %d", len(got), len(cases))
		}

		for i, one := range cases {
			want := audit.Entry{At: got[len(got)-1-i].At, Action: "change", Subject: one.subject,
				Detail: one.want, KeyID: "3fa9c2d1"}
			if one.isRedacted {
				want.RedactedAt, want.RedactedBy = first, "id1"
			}

			if e := got[len(got)-1-i]; e != want {
				t.Errorf("%s: got %+v, want %+v", one.detail, e, want)
			}
		}
	}
}

// A key that is short, that begins another key, or that is a word of the format itself, stands in
// many texts of the log. Messages with such keys are erased again and again. Each erasure must
// succeed, and must leave the other entries.
func TestLog_RedactsKeysThatStandInOtherTexts(t *testing.T) {
	t.Parallel()
	others := []string{
		`{"all":true,"reason":"maintenance of 2026-01-17, 17:00 to 17:45","until":"2026-01-17T17:45:00Z"}`,
		`{"filter":{"keyPrefix":"/news/2027/"},"reason":"ticket 4711"}`,
		`{"key":"/news/12","reason":"legal hold"}`,
		`{"cron":"30 2 * * *","messageBytes":7}`,
		`{"key":"` + lane.ErasedKey("7") + `"}`,
	}

	for _, key := range []string{"7", "e", "/news/1", "key", "keyPrefix", "true", "null", "{", `"`,
		"30 2 * * *",
		"ticket 4711", "sha256:", lane.ErasedKey("/other"), strings.Repeat("k", 900)} {
		t.Run(key[:min(len(key), 20)], func(t *testing.T) {
			t.Parallel()
			l, c, _ := newLog(t)
			for _, detail := range others {
				recordAll(t, l, c, audit.Entry{Action: "change", Detail: detail})
			}

			recordAll(t, l, c, audit.Entry{Action: "pause", Detail: fmt.Sprintf(`{"key":%q}`, key)})
			for n := range 12 {
				erase(t, l, fmt.Sprint("id", n), key)
			}

			want := slices.Concat(others, []string{`{"key":"` + lane.ErasedKey(key) + `"}`})
			if got := detailsOf(t, l); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// The replacement of a key can be the key of another message. The erasure of that message must not
// change an entry that names the first key only.
func TestLog_RedactsNoReplacement(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	recordAll(t, l, c, audit.Entry{Action: "pause", Detail: `{"key":"/jane"}`})
	erase(t, l, "id1", "/jane")
	erase(t, l, "id2", lane.ErasedKey("/jane"))
	got := readAll(t, l, audit.Query{Limit: 10})
	if want := `{"key":"` + lane.ErasedKey("/jane") + `"}`; got[0].Detail != want ||
		got[0].RedactedBy != "id1" {
		t.Errorf("got %+v, want the detail %s of the first erasure", got[0], want)
	}
}

// An entry reaches storage after its message was erased, when the message has no key any more. A
// repeated erasure finds the entry by the hash of the key.
func TestLog_RedactsLateEntries(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	erase(t, l, "id1", "/jane")
	recordAll(t, l, c, audit.Entry{Action: "discard", Subject: "id1", Detail: `{"reason":"Jane"}`},
		audit.Entry{Action: "pause", Detail: `{"key":"/jane"}`})
	erase(t, l, "id1", "/jane")

	if got, want := strings.Join(detailsOf(t, l), "\n"), "\n"+`{"key":"`+lane.ErasedKey("/jane")+
		`"}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An empty key is no key, and an empty subject is no subject.
func TestLog_RedactEmptyKey(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	recordAll(t, l, c, audit.Entry{Action: "pause", Detail: `{"key":"","reason":""}`})
	if err := l.Redact(t.Context(), "id1", lane.ErasedKey("")); err != nil {
		t.Fatal(err)
	}

	if got := detailsOf(t, l); got[0] != `{"key":"","reason":""}` {
		t.Errorf("got %s, want it unchanged", got[0])
	}
}

// An erasure reads the entries of its own message and key only, however many others there are.
func TestLog_RedactReadsItsOwnEntries(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	if done, err := l.RemoveExpired(t.Context()); !done || err != nil {
		t.Fatal(done, err)
	}

	for i := range 3000 {
		l.Record(t.Context(), audit.Entry{Action: "resume",
			Detail: fmt.Sprintf(`{"key":"k%d"}`, i)})
	}

	recordAll(t, l, c, audit.Entry{Action: "pause", Detail: `{"key":"/jane"}`},
		audit.Entry{Action: "edit", Subject: "id1"})
	faults := storagetest.NewFaults()
	reads := map[string]int{}
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		reads[c.Op]++
		return storagetest.Fault{}
	})

	l.Table = faults.Table(l.Table)
	erase(t, l, "id1", "/jane")

	if reads["Range"] > 2 || reads["Get"] > 3 || reads["Transact"] != 1 {
		t.Errorf("got the calls %v, want two queries, the rows of two entries and of the index's state, and one write",
			reads)
	}
}

// Two erasures of different keys that stand in one entry run at the same time, and each write can
// be answered late or not at all. After both were repeated, both keys are gone.
func TestLog_RedactsAnEntryOfTwoKeys(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]storagetest.Fault{
		"Answered":   {},
		"LostBefore": {Kind: storagetest.FailBefore},
		"LostAfter":  {Kind: storagetest.FailAfter},
		"Late":       {Kind: storagetest.LateHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c, _ := newLog(t)
			recordAll(t, l, c, audit.Entry{Action: "change", Detail: `{"keys":["/jane","/john"]}`})
			faults := storagetest.NewFaults()
			isRedaction := func(c storagetest.Call) bool {
				return c.Op == "Transact" && c.Ops[0].Values["Detail"] != nil
			}
			faults.Once(isRedaction, fault)
			l.Table = faults.Table(l.Table)
			var erasures sync.WaitGroup
			for id, key := range map[string]string{"id1": "/jane", "id2": "/john"} {
				erasures.Go(func() {
					err := errors.New("not asked yet")
					for range 3 {
						if err = l.Redact(t.Context(), id, lane.ErasedKey(key)); err == nil {
							break
						}
						if weir.KindOf(err) != weir.Unavailable {
							t.Errorf("got %v, want Unavailable", err)
						}
					}

					if err != nil {
						t.Errorf("%s: got %v at the third try, want no error", id, err)
					}
				})
			}

			erasures.Wait()
			faults.Release()
			faults.Wait()
			want := `{"keys":["` + lane.ErasedKey("/jane") + `","` + lane.ErasedKey("/john") + `"]}`
			got := readAll(t, l, audit.Query{Limit: 10})[0]
			if got.Detail != want || len(strings.Fields(got.RedactedBy)) != 2 {
				t.Errorf("got %+v, want %s, redacted by both", got, want)
			}
		})
	}
}

// If storage refuses to change one entry, the erasure changes the others and succeeds. The
// process's log has an error.
func TestLog_RedactLeavesARefusedEntry(t *testing.T) {
	t.Parallel()
	for _, kind := range []storage.Kind{storage.TooLarge, storage.Other, storage.Conflict} {
		l, c, out := newLog(t)
		recordAll(t, l, c, audit.Entry{Action: "first", Detail: `{"key":"/jane"}`},
			audit.Entry{Action: "second", Detail: `{"key":"/jane"}`})
		faults := storagetest.NewFaults()
		refused := ""
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Transact" || c.Ops[0].Values["Detail"] == nil ||
				refused != "" && c.Ops[0].Key != refused {
				return storagetest.Fault{}
			}

			refused = c.Ops[0].Key
			return storagetest.Fault{Kind: storagetest.FailBefore,
				Err: &storage.Error{Op: "table transact", Kind: kind, Index: 0}}
		})

		l.Table = faults.Table(l.Table)
		erase(t, l, "id1", "/jane")

		if got := strings.Count(strings.Join(detailsOf(t, l), "\n"), "sha256:"); got != 1 {
			t.Errorf("%v: got %d redacted entries, want the one that storage does not refuse", kind,
				got)
		}

		if !strings.Contains(out.String(), "level=ERROR") ||
			strings.Contains(out.String(), "not redacted\" key") {
			t.Errorf("%v: got the log %s, want an error", kind, out)
		}
	}
}

func TestLog_RedactWithoutStorage(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(storage.Table) storage.Table{
		"NoReads":  func(t storage.Table) storage.Table { return unreadable{t} },
		"NoWrites": func(t storage.Table) storage.Table { return broken{t} },
	} {
		l, c, _ := newLog(t)
		recordAll(t, l, c, audit.Entry{Action: "pause", Detail: `{"key":"/john"}`})
		l.Table = wrap(l.Table)
		if err := l.Redact(t.Context(), "id2", lane.ErasedKey("/john")); weir.KindOf(err) !=
			weir.Unavailable {
			t.Errorf("%s: got %v, want Unavailable", name, err)
		}
	}
}

// FuzzRedact erases a message with any key. The entry of the key loses it, and the entry of another
// key stays.
func FuzzRedact(f *testing.F) {
	for _, key := range []string{"7", "a", "key", "sha256:", lane.ErasedKey("7"), "/news/1",
		"\u00fc", "\"", "\\", "\x00"} {
		f.Add(key, key+"2", "reason "+key)
	}

	f.Fuzz(func(t *testing.T, key, other, reason string) {
		for _, text := range []*string{&key, &other, &reason} {
			*text = strings.ToValidUTF8(*text, "?")
		}

		if key == "" || key == other || len(key)+len(other)+len(reason) > 300 {
			return
		}

		c := &clock{time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)}
		l := &audit.Log{Table: memory.New(c.Now).Table(), Now: c.Now, Logger: quiet}
		mine, others := encode(t, key, reason), encode(t, other, reason)
		recordAll(t, l, c, audit.Entry{Action: "mine", Detail: mine},
			audit.Entry{Action: "other", Detail: others})
		for n := range 3 {
			erase(t, l, fmt.Sprint("id", n), key)
		}

		want := []string{encode(t, lane.ErasedKey(key), reason), others}
		if got := detailsOf(t, l); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("key %q: got %q, want %q", key, got, want)
		}
	})
}
