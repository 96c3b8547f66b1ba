package contract_test

import (
	stdxml "encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"weir/internal/weir"
)

func FuzzAccept(f *testing.F) {
	s := newSet(f)
	for _, cases := range [][]refusal{notXML, notReadable, notByContract} {
		for _, c := range cases {
			if len(c.body) < 1<<10 {
				f.Add(c.kind, []byte(c.body))
			}
		}
	}

	for _, body := range []string{good, euro, utf16Bytes(euro, true),
		utf16Bytes(`<?xml version="1.0" encoding="UTF-16"?>`+euro, false), "<ping/>",
		"<queue><!-- x --><![CDATA[y]]>&#x20;&lt;<?z?></queue>",
		"<?xml version='1.0' encoding='latin1'?><ping>\xe4</ping>",
		`<f:entry xmlns:f="urn:feed"><f:id>1</f:id></f:entry>`,
		`<entry xmlns:f="urn:feed" f:a="1"  a = '2' ><id >1</id ></entry>`} {
		f.Add(xml, []byte(body))
		f.Add("", []byte(body))
		f.Add("text/xml; charset=windows-1252", []byte(body))
	}

	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		before := string(body)
		m, err := s.Accept(t.Context(), kind, body)
		if err != nil {
			checkRefused(t, err)
			return
		}

		if string(m.Body) != before || m.Size != len(before) ||
			m.ContentType != kind && kind != "" {
			t.Fatalf("got the message %+v, want the body %q of type %q", m, before, kind)
		}

		keyless := m.Contract == "ping" || m.Contract == "queue"
		if len(m.Key) > 1<<10 || (m.Key == "") != keyless || !utf8.ValidString(m.Key) ||
			strings.TrimSpace(m.Key) != m.Key || strings.ContainsFunc(m.Key, unicode.IsControl) {
			t.Fatalf("got the key %q of contract %s; want trimmed UTF-8 of at most 1 KiB without control "+
				"characters, and an empty key only if the contract has no key: %t", m.Key,
				m.Contract, keyless)
		}

		if utf8.Valid(body) && !strings.Contains(before, "<?xml") &&
			!strings.Contains(kind, "charset") {
			checkReadable(t, before)
		}
	})
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	var e *weir.Error
	if !errors.As(err, &e) || statuses[e.Kind] == 0 || e.Kind == weir.Unavailable ||
		e.Message == "" {
		t.Fatalf("got the error %v, want a message and a kind of httpio", err)
	}

	if (e.Kind == weir.Invalid) != (len(e.Problems) > 0) && e.Kind != weir.Malformed {
		t.Fatalf("got %d problems in %v, want some only if Invalid", len(e.Problems), err)
	}

	for _, p := range e.Problems {
		if p.Message == "" || !utf8.ValidString(p.Message) || len(p.Message) > 1<<10 {
			t.Fatalf("got the problem %+v, want a message of at most 1 KiB of UTF-8", p)
		}
	}
}

// checkReadable fails the test if encoding/xml cannot read an accepted document.
func checkReadable(t *testing.T, text string) {
	t.Helper()
	decoder := stdxml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "\uFEFF")))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the standard decoder returned an error for the accepted document %q: %v; want no error", text,
				err)
		}
	}
}
