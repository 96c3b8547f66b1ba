package batch_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"weir/internal/batch"
	"weir/internal/testkit/ziptest"
	"weir/internal/wire"
)

// A batch may have each encoding that a post may have. Its parts become messages in UTF-8.
func TestBatch_Encodings(t *testing.T) {
	t.Parallel()
	const feed = `<feed><article path="/ä"><title>Grüße</title></article></feed>`
	for name, c := range map[string]struct {
		contentType, declared string
		encoding              encoding.Encoding
		partType              string
	}{
		"latin1": {"", "ISO-8859-1", charmap.ISO8859_1, "application/xml; charset=utf-8"},
		"windows-1252": {"text/xml; charset=windows-1252", "windows-1252", charmap.Windows1252,
			"text/xml; charset=utf-8"},
		"utf-16": {"", "utf-16", unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
			"application/xml; charset=utf-8"},
		"utf-16be": {"text/xml; charset=utf-16be", "utf-16",
			unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), "text/xml; charset=utf-8"},
	} {
		document, err := c.encoding.NewEncoder().String(`<?xml version="1.0" encoding="` +
			c.declared + `"?>` + feed)
		if err != nil {
			t.Fatal(err)
		}

		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				got := p.awaitFinal(p.accept(batch.Spec{ContentType: c.contentType}, document).ID)
				messages := w.lanes.MessagesOf("/ä")
				if got.State != wire.BatchFiled || len(messages) != 1 {
					t.Fatalf("got %+v and %d messages, want one filed message", got, len(messages))
				}

				want := strings.TrimSuffix(strings.TrimPrefix(feed, "<feed>"), "</feed>")
				if m := messages[0]; m.ContentType != c.partType || string(m.Body) != want {
					t.Errorf("got %s %q, want %s %q", m.ContentType, m.Body, c.partType, want)
				}
			})
		})
	}
}

// newMultipart returns a multipart body with the boundary b. Each part has headers and a content.
func newMultipart(parts ...[2]string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--b\r\nContent-Type: application/xml\r\n" + p[0] + "\r\n" + p[1] + "\r\n")
	}
	return b.String() + "--b--\r\n"
}

func TestBatch_TransferEncodings(t *testing.T) {
	t.Parallel()
	article := newArticle("/a", 1)
	inBase64 := base64.StdEncoding.EncodeToString([]byte(article))
	wrapped := inBase64[:20] + "\r\n" + inBase64[20:] + "\r\n"
	const encoding = "Content-Transfer-Encoding: "
	for name, c := range map[string]struct {
		headers, content string
		problem          string // "" = the part is filed
	}{
		"base64":  {encoding + "base64\r\n", inBase64, ""},
		"wrapped": {encoding + "Base64\r\n", wrapped, ""},
		"quoted-printable": {encoding + "quoted-printable\r\n",
			strings.ReplaceAll(article, "=", "=3D"), ""},
		"binary": {encoding + "binary\r\n", article, ""},
		"damaged base64": {encoding + "base64\r\n", inBase64[:21] + "!" + inBase64[21:],
			"not valid base64"},
		"damaged quotes": {encoding + "quoted-printable\r\n", "\x01" + article,
			"not valid quoted-printable"},
		"unknown": {encoding + "x-uuencode\r\n", article,
			`"x-uuencode" is not supported`},
		"content encoding": {"Content-Encoding: gzip\r\n", article, `"gzip" is not supported`},
		"due time": {"Weir-Deliver-After: 1h\r\n", article,
			"has no header Weir-Deliver-After"},
		"idempotency key": {"Idempotency-Key: 1\r\n", article,
			"has no header Idempotency-Key"},
		"misspelt due time":     {"Deliver-At: 1h\r\n", article, "has no header Deliver-At"},
		"identity is no coding": {"Content-Encoding: identity\r\n", article, ""},
	} {
		for _, split := range [][]string{nil, {"/article"}} {
			t.Run(name+strings.Join(split, ""), func(t *testing.T) {
				simulate(t, func(w *world) {
					p := w.startProcess()
					defer p.stop()
					got := p.awaitFinal(
						p.accept(batch.Spec{ContentType: "multipart/mixed; boundary=b",
							Split: split}, newMultipart([2]string{c.headers, c.content})).ID)
					text := got.Reason
					for _, problem := range got.Problems {
						text += problem.Message
					}

					isFiled := got.State == wire.BatchFiled &&
						slices.Equal(w.lanes.BodiesOf("/a"), []string{article})
					if isFiled != (c.problem == "") || !strings.Contains(text, c.problem) {
						t.Errorf("got %+v, want it filed or the problem %q", got, c.problem)
					}
				})
			})
		}
	}
}

// A zip that the Finder of macOS or the Explorer of Windows has made has files that are not the
// sender's.
func TestBatch_IgnoresTheLitterOfSystems(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		article := newArticle("/a", 1)
		got := p.awaitFinal(p.accept(batch.Spec{ContentType: "application/zip"},
			ziptest.New(t, ".DS_Store", "\x00",
				"a.xml", article, "__MACOSX/", "", "__MACOSX/._a.xml", "\x00\x05\x16\x07",
				"news/._b.xml", "\x00",
				"news/.DS_Store", "\x00", "Thumbs.db", "\xd0\xcf\x11\xe0",
				"news/Desktop.ini", "[.ShellClassInfo]")).ID)
		if bodies := w.lanes.BodiesOf("/a"); got.State != wire.BatchFiled || got.Parts != 1 ||
			!slices.Equal(bodies, []string{article}) {
			t.Errorf("got %+v and the messages %q, want one part", got, bodies)
		}
	})
}
