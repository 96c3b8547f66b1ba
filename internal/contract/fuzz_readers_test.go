package contract

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// FuzzEncodings holds each encoding against golang.org/x/text: valid bytes have the same characters
// there. A reader of few bytes at a time returns the same text as one of the whole body.
func FuzzEncodings(f *testing.F) {
	names := slices.Sorted(mapKeys(samples))
	for i, name := range names {
		f.Add(uint8(i), []byte(encodeAs(f, name, samples[name])))
	}

	f.Add(uint8(slices.Index(names, "shift_jis")), []byte("\xfb\xfc\x8b\xb4\xed\x40"))
	f.Add(uint8(slices.Index(names, "euc-jp")), []byte("\x8f\xb0\xa1\xad\xfa"))
	f.Add(uint8(slices.Index(names, "big5")), []byte("\xb4\xe4\xa5\x5d"))
	f.Add(uint8(slices.Index(names, iso2022JP)), []byte("\x1b$B\x1b(B\x1b(Ja~\x1b(B"))
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		name := names[int(n)%len(names)]
		text, isValid := convertToUTF8(body, name)
		if !utf8.ValidString(text) {
			t.Fatalf("%s % x: got %q, want UTF-8", name, body, text)
		}

		if known := multiByte[name]; known != nil && isValid {
			if want, err := known.NewDecoder().Bytes(body); err != nil || string(want) != text {
				t.Fatalf("%s % x: got %q, want %q, %v", name, body, text, want, err)
			}
		}

		pieces := utf8Reader{source: iterReader(string(body)), encoding: name}
		var read bytes.Buffer
		if _, err := read.ReadFrom(&pieces); (err == nil) != isValid || read.String() != text {
			t.Fatalf("%s % x: got %q, %v by pieces; want %q, valid %t", name, body, read.String(), err,
				text, isValid)
		}

		if again, rest, _ := DecodeAs(name, body); again != text || (len(rest) == 0) != isValid {
			t.Fatalf("%s % x: got %q and the rest % x, want %q, valid %t", name, body, again, rest,
				text, isValid)
		}
	})
}

// FuzzRedact holds the redacted view against the document: the hidden values are gone, and the
// others are as they were.
func FuzzRedact(f *testing.F) {
	f.Add("text/xml", []byte("<r s='secret'><t>a</t><s>secret<i/></s><s/></r>"))
	f.Add("text/xml", []byte("<?xml version='1.0' encoding='Shift_JIS'?><r><t>\x83\x5c</t><s>\x83\x5c</s></r>"))
	f.Add("text/xml; charset=iso-2022-jp",
		[]byte("\x1b(J<r><s>\x1b(B~\x1b$B9A\x1b(B</s><t>~\x1b$B9A\x1b(B</t></r>\x1b(B"))
	f.Add("text/xml; charset=utf-16le",
		[]byte("<\x00r\x00>\x00<\x00s\x00>\x00a\x00<\x00/\x00s\x00>\x00<\x00/\x00r\x00>\x00"))
	f.Add("text/xml", []byte("<!DOCTYPE r SYSTEM 'a'><x:r xmlns:x='u'><x:s><![CDATA[a]]>&amp;</x:s></x:r>"))
	set, err := New([]Definition{{Name: "r", Root: "r", Redact: []string{".//s", ".//@s"}}},
		Limits{MaxBody: 1 << 12})
	if err != nil {
		f.Fatal(err)
	}

	hidden, err := CompileTreePath(".//s")
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		if _, err := set.Accept(t.Context(), contentType, body); err != nil {
			return
		}
		if contentType == "" {
			contentType = xmlType
		}

		redacted, err := set.Redact(t.Context(), "r", contentType, body)
		if err != nil {
			var refused *weir.Error
			if !errors.As(err, &refused) || refused.Kind != weir.Conflict {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}

		before, after := treeOf(t, contentType, body), treeOf(t, contentType, redacted.Body)
		for text := range after.Texts(hidden) {
			if strings.Trim(strings.ReplaceAll(text, RedactedMark, ""), " \t\r\n") != "" {
				t.Fatalf("%q: got the value %q in %q, want it hidden", body, text, redacted.Body)
			}
		}

		want, got := listOthers(before.doc.Root()), listOthers(after.doc.Root())
		if !slices.Equal(got, want) {
			t.Fatalf("%q: got %q beside the hidden values, want %q", body, got, want)
		}
	})
}

// listOthers returns the names and texts in an element, except those of s.
func listOthers(e *etree.Element) (texts []string) {
	if e.Tag == "s" {
		return nil
	}

	texts = append(texts, e.Tag, textDirectlyIn(e))
	for _, a := range e.Attr {
		if a.FullKey() != "s" {
			texts = append(texts, a.FullKey(), a.Value)
		}
	}

	for _, inner := range e.ChildElements() {
		texts = append(texts, listOthers(inner)...)
	}

	return texts
}

func treeOf(t *testing.T, contentType string, body []byte) Tree {
	t.Helper()
	text, err := decodeBody(body, charsetOf(contentType))
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}

	tree, err := ParseTree([]byte(text), "", Limits{})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}

	return tree
}

// FuzzPaths compiles a path and a condition, and reads a document by them. Both take bounded time,
// and refuse what they do not know.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"./t", ".//t[@a='1']/../s", "./t[.='a'][2]", "//x:s/@x:y",
		"./{u}s[text()]", "./t[ s = \"a\" ]", "./*[namespace-uri()='u']", "./t[-1]/.."} {
		f.Add(path, "has('"+strings.ReplaceAll(path, "'", `\'`)+"')",
			"<r xmlns:x='u'><t a='1'>a<s>b</s></t><x:s x:y='2'/></r>")
	}

	f.Fuzz(func(t *testing.T, path, condition, document string) {
		p, err := CompileTreePath(path)
		if err != nil && !utf8.ValidString(err.Error()) && utf8.ValidString(path) {
			t.Fatalf("%q: got the error %q, want UTF-8", path, err)
		}

		m, _ := compileMatch(condition)
		tree, treeErr := ParseTree([]byte(document), "", Limits{Elements: 200, Depth: 20})
		if treeErr != nil || len(document) > 4<<10 {
			return
		}

		if err == nil {
			for range tree.Texts(p) {
			}
		}

		if m != nil {
			m.holds(tree.doc, nil)
		}
	})
}
