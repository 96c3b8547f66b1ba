package audit_test

import (
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/weir"
)

func TestLog_Redact(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for _, e := range []audit.Entry{
		{Action: "pause", Detail: `{"key":"/jane","reason":"r"}`},
		{Action: "edit", Subject: "id1", Detail: `{"note":"wrong address"}`, KeyID: "3fa9c2d1"},
		{Action: "cancel.many", Detail: `{"filter":{"keyPrefix":"/jane","list":["/john","/jane/2"]}}`},
		{Action: "pause", Detail: `{"key":"/john"}`},
		{Action: "edit", Subject: "id2", Detail: `{"note":"other"}`},
		{Action: "lanes", Detail: `no JSON of /jane`},
	} {
		c.now = c.now.Add(time.Second)
		l.Record(t.Context(), e)
	}
	want := []string{`no JSON of sha256:1`, `{"note":"other"}`, `{"key":"/john"}`,
		`{"filter":{"keyPrefix":"sha256:1","list":["/john","sha256:1/2"]}}`, ``, `{"key":"sha256:1","reason":"r"}`}
	for _, step := range []string{"once", "again"} {
		if err := l.Redact(t.Context(), "id1", "/jane", "sha256:1"); err != nil {
			t.Fatal(err)
		}
		got := readAll(t, l, audit.Query{Limit: 100})
		if len(got) != len(want) || got[4].KeyID != "3fa9c2d1" || got[4].Action != "edit" {
			t.Fatalf("%s: got %+v, want %d entries, and the entry of id1 without its parameters alone", step, got,
				len(want))
		}
		for i, e := range got {
			if e.Detail != want[i] {
				t.Errorf("%s: got %s, want %s", step, e.Detail, want[i])
			}
		}
	}
	l.Table = broken{l.Table}
	if err := l.Redact(t.Context(), "id2", "/john", "sha256:2"); weir.KindOf(err) != weir.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

func TestLog_RedactEmptyKey(t *testing.T) {
	t.Parallel()
	l, _, _ := newLog(t)
	l.Record(t.Context(), audit.Entry{Action: "pause", Detail: `{"all":true,"reason":""}`})
	if err := l.Redact(t.Context(), "id1", "", "sha256:1"); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, l, audit.Query{Limit: 1}); got[0].Detail != `{"all":true,"reason":""}` {
		t.Errorf("got %s, want it unchanged", got[0].Detail)
	}
}
