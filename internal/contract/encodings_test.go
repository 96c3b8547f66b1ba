package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
)

// samples has a text for each kind of encoding.
var samples = map[string]string{
	"windows-1250": "Příliš žluťoučký", "windows-1251": "Гавань открыта",
	"windows-1252": "Zürich „€“",
	"windows-1253": "Λιμάνι", "windows-1254": "İstanbul", "windows-1255": "נמל",
	"windows-1256": "ميناء",
	"windows-1257": "Rīga", "windows-1258": "bđ", "windows-874": "ท่าเรือ",
	"iso-8859-1": "Zürich \u0085", "iso-8859-2": "Łódź", "iso-8859-3": "ĉ", "iso-8859-4": "ģ",
	"iso-8859-5": "Порт",
	"iso-8859-6": "ميناء", "iso-8859-7": "Λιμάνι", "iso-8859-8": "נמל", "iso-8859-9": "Ğ",
	"iso-8859-10": "Đ",
	"iso-8859-13": "Ž", "iso-8859-14": "ŵ", "iso-8859-15": "Œ€", "iso-8859-16": "Ș",
	"koi8-r": "Гавань", "koi8-u": "Ґанок", "macintosh": "Ÿ", "ibm866": "Порт",
	"us-ascii":  "harbour",
	"shift_jis": "表示ソ港 ﾊ~", "euc-jp": "港が開く ﾊ", "iso-2022-jp": "港<が>開く", "gbk": "港口开放",
	"gb18030": "港口\u00a0開 𠀀😀", "big5": "港口開放", "euc-kr": "항구",
}

// encodeAs returns a text in an encoding that golang.org/x/text knows.
func encodeAs(t testing.TB, name, text string) string {
	t.Helper()
	if name == ascii {
		return text
	}

	known, err := ianaindex.MIME.Encoding(name)
	if err != nil || known == nil {
		t.Fatalf("%s: %v", name, err)
	}

	encoded, err := known.NewEncoder().String(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	return encoded
}

// escaped is a text as the content of an element.
func escaped(text string) string { return escapeText.Replace(text) }

// A document is read in each encoding, by its declaration and by its charset; it is delivered byte
// for byte, hides its redacted values and nothing else, and its parts are in UTF-8.
func TestEncodings(t *testing.T) {
	t.Parallel()
	set, err := New([]Definition{{Name: "r", Root: "r", Redact: []string{"./s", "./@s"},
		Show: []ShownField{{Name: "T", Path: "./t"}}}}, Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	path, err := CompileSplitPath("/r/t")
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range samples {
		body := "<r s='" + escaped(text) + "'><t>" + escaped(text) + "</t><s>" + escaped(text) +
			"<i/></s></r>"
		hidden := "<r s='[redacted]'><t>" + escaped(text) + "</t><s>[redacted]</s></r>"
		declaration := "<?xml version='1.0' encoding='" + name + "'?>\n"
		for how, c := range map[string][3]string{
			"declared": {xmlType, declaration + body, declaration + hidden},
			"labelled": {"text/xml; charset=" + strings.ToUpper(name), body, hidden},
			"in the DTD": {xmlType,
				declaration + "<!-- " + text + " --><!DOCTYPE r SYSTEM '" + text + "'>" + body,
				declaration + "<!-- " + text + " --><!DOCTYPE r SYSTEM '" + text + "'>" + hidden},
		} {
			document := encodeAs(t, name, c[1])
			found, err := set.Check(t.Context(), c[0], []byte(document))
			if err != nil || len(found.Problems) > 0 || string(found.Message.Body) != document ||
				found.Message.Shown["T"] != strings.Join(strings.Fields(text), " ") {
				t.Errorf("%s, %s: got %q, %v, %v; want the text %q", name, how, found.Message.Shown,
					found.Problems, err, text)
			}

			redacted, err := set.Redact(t.Context(), "r", c[0], []byte(document))
			shown, _ := decodeBody(redacted.Body, charsetOf(c[0]))
			if want := strings.ReplaceAll(c[2], declaration, blankDeclaration(declaration)); err !=
				nil || shown != want {
				t.Errorf("%s, %s: redacted to %q, %v; want %q", name, how, shown, err, want)
			}

			split, err := set.Split(iterReader(document), c[0], path)
			if err != nil {
				t.Errorf("%s, %s: %v", name, how, err)
				continue
			}

			part, err := split.Next()
			if want := "<t>" + escaped(text) + "</t>"; err != nil || string(part.Body) != want ||
				name != ascii && !strings.HasSuffix(split.PartType(), "charset=utf-8") {
				t.Errorf("%s, %s: got the part %q of type %s, %v; want %q", name, how, part.Body,
					split.PartType(), err, want)
			}
		}
	}
}

const xmlType = "application/xml"

func charsetOf(contentType string) string {
	charset, _ := parseContentType(contentType)
	return charset
}

// iterReader returns a reader of few bytes at a time, so that characters are cut.
func iterReader(text string) *threeBytes { return &threeBytes{strings.NewReader(text)} }

type threeBytes struct{ *strings.Reader }

func (r *threeBytes) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(3, len(p))]) }

// A text is valid exactly if golang.org/x/text encodes it back to the same bytes. ISO-2022-JP has
// many spellings of one text, and is left out.
func TestEncodings_AreThoseThatEncodeBack(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range slices.Sorted(mapKeys(samples)) {
		if own[name] != nil || name == iso2022JP {
			continue
		}

		known, err := ianaindex.MIME.Encoding(name)
		if err != nil {
			t.Fatal(err)
		}

		checkEncoding(t, name, known, random)
	}
}

func checkEncoding(t *testing.T, name string, known encoding.Encoding, random *rand.Rand) {
	t.Helper()
	for range 400 {
		body := make([]byte, 1+random.IntN(5))
		for i := range body {
			body[i] = byte(random.IntN(256))
			if random.IntN(3) > 0 {
				body[i] |= 0x80
			}
		}

		want, err := known.NewDecoder().Bytes(body)
		back, err2 := known.NewEncoder().Bytes(want)
		isValid := err == nil && err2 == nil && bytes.Equal(back, body)
		got, ok := convertToUTF8(body, name)
		if ok != isValid || ok && got != string(want) {
			t.Errorf("%s % x: got %q, valid %t; want %q, valid %t, as % x", name, body, got, ok,
				want, isValid, back)
		}
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A wrong label is no fault of a document in plain ASCII, because its bytes mean the same. UTF-16
// and ISO-2022-JP give these bytes another meaning.
func TestEncodings_WrongLabel(t *testing.T) {
	t.Parallel()
	set, err := New([]Definition{{Name: "r", Root: "r"}}, Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	const declared = "<?xml version='1.0' encoding='windows-1251'?>"
	for _, c := range []struct{ contentType, body, want string }{
		{"text/xml; charset=utf-8", declared + "<r>a</r>", ""},
		{"text/xml; charset=big5", declared + "<r>a</r>", ""},
		{"text/xml; charset=utf-8", declared + "<r>ä</r>",
			"the charset parameter says utf-8 and the XML declaration says windows-1251"},
		{"text/xml; charset=iso-2022-jp", declared + "<r>a</r>",
			"says iso-2022-jp and the XML declaration says"},
		{xmlType, "<?xml version='1.0' encoding='UTF-16'?><r/>",
			"the declaration says UTF-16, and the bytes are UTF-8"},
		{xmlType, "<?xml version='1.0' encoding='UTF-16'?><r>\xff\xff\xff\xff\xff</r>",
			"says UTF-16, and the bytes are not"},
	} {
		_, err := set.Accept(t.Context(), c.contentType, []byte(c.body))
		split, err2 := set.Split(strings.NewReader(c.body), c.contentType)
		if err2 == nil {
			_, err2 = split.Next()
		}

		for _, err := range []error{err, err2} {
			if text := fmt.Sprint(err); c.want == "" && strings.Contains(text, "says") ||
				!strings.Contains(text, c.want) {
				t.Errorf("%s %q: got %v, want %q", c.contentType, c.body, err, c.want)
			}
		}
	}

	late := declared + "<r>" + strings.Repeat("x", StartSize) + "\xe0</r>"
	split, err := set.Split(strings.NewReader(late), "text/xml; charset=utf-8")
	if err != nil {
		t.Fatal(err)
	}

	if _, err = split.Next(); err == nil ||
		!strings.Contains(err.Error(), "the charset parameter says utf-8") {
		t.Errorf("late: got %v, want the names of both encodings", err)
	}
}

// Invalid bytes have a line, also in a document that is read in pieces.
func TestEncodings_InvalidBytesHaveAPlace(t *testing.T) {
	t.Parallel()
	set, err := New([]Definition{{Name: "r", Root: "r"}}, Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	for name, bad := range map[string]string{"windows-1253": "\xd2", "shift_jis": "\x81",
		"euc-jp": "\x8f\xb0\xa1", "gbk": "\xff",
		"gb18030": "\x84\x31\xff\x37", "big5": "\x88\x62", "euc-kr": "\xc9\x41",
		"iso-2022-jp": "\x1b$B\n", "iso-8859-7": "\xff"} {
		body := "<?xml version='1.0' encoding='" + name + "'?>\n<r>\nab" + bad + "</r>"
		want := "line 3, column 3: the "
		_, err := set.Accept(t.Context(), xmlType, []byte(body))
		split, err2 := set.Split(iterReader(body), xmlType)
		if err2 == nil {
			_, err2 = split.Next()
		}

		for _, err := range []error{err, err2} {
			if text := fmt.Sprint(err); !strings.Contains(text, want) ||
				!strings.Contains(text, "is not valid "+strings.ToUpper(name)) {
				t.Errorf("%s: got %v, want %q and the name of the encoding", name, err, want)
			}
		}
	}
}
