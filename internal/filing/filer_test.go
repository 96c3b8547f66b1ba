package filing_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/weir"
)

// fake implements the interfaces of the Filer's fields, except Limits.
type fake struct {
	refusal error     // the error that Accept returns
	dueAt   time.Time // the due time in the body; zero = none
	filed   []weir.Message
	keys    []string // idempotency keys of the messages in filed
}

func (f *fake) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	return weir.Message{Key: "/a", ContentType: contentType, Body: body, DueAt: f.dueAt}, f.refusal
}

func (f *fake) Check(string) error { return nil }

func (f *fake) Append(_ context.Context, m weir.Message, key string) (lane.Receipt, error) {
	f.filed, f.keys = append(f.filed, m), append(f.keys, key)
	return lane.Receipt{Message: m, Stage: weir.Queued}, nil
}

func newFiler(f *fake) *filing.Filer { return &filing.Filer{Contracts: f, Callbacks: f, Log: f} }

func TestFiler_FilesWithItsOptions(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &fake{dueAt: now.Add(time.Hour)}
	h := http.Header{"Idempotency-Key": {"k-1"}, "Weir-Deliver-After": {"90s"},
		"Weir-Callback": {"https://a.example/"}}
	o, err := newFiler(f).ReadOptions(h, now)
	if err != nil {
		t.Fatal(err)
	}

	s := filing.Submission{ContentType: "text/xml", Body: []byte("<a/>"), Options: o}
	if _, err := newFiler(f).File(t.Context(), s); err != nil || len(f.filed) != 1 {
		t.Fatalf("filed %d messages, error %v; want 1 message and no error", len(f.filed), err)
	}

	m := f.filed[0]
	if want := now.Add(90 * time.Second); !m.DueAt.Equal(want) ||
		m.Callback != "https://a.example/" ||
		f.keys[0] != "k-1" || m.ContentType != "text/xml" || string(m.Body) != "<a/>" {
		t.Errorf("filed %+v with the key %q; want the due time %s, the callback and k-1", m,
			f.keys[0], want)
	}

	s.Options.DueAt = time.Time{}
	if r, err := newFiler(f).File(t.Context(), s); err != nil || !r.Message.DueAt.Equal(f.dueAt) {
		t.Errorf("got the due time %s, %v; want the body's %s", r.Message.DueAt, err, f.dueAt)
	}
}

func TestFiler_FilesNothingThatBreaksItsContract(t *testing.T) {
	t.Parallel()
	f := &fake{refusal: &weir.Error{Kind: weir.Invalid}}
	if _, err := newFiler(f).File(t.Context(), filing.Submission{}); weir.KindOf(err) !=
		weir.Invalid ||
		len(f.filed) != 0 {
		t.Errorf("filed %d messages, error %v; want no message, and Invalid", len(f.filed), err)
	}
}
