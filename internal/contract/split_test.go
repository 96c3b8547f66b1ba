package contract_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/text/encoding/charmap"

	"weir/internal/contract"
	"weir/internal/weir"
)

// splitText returns the line and the body of each part of a document. For a part without a body, it
// returns the line and the error.
func splitText(t testing.TB, in io.Reader, contentType string, paths ...string) (parts []string,
	err error) {
	t.Helper()
	var compiled []*contract.SplitPath
	for _, p := range paths {
		c, err := contract.CompileSplitPath(p)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, c)
	}

	s, err := newSet(t).Split(in, contentType, compiled...)
	if err != nil {
		return nil, err
	}

	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return parts, err
		}

		text := string(p.Body)
		if p.Err != nil {
			text = p.Err.Error()
		}

		parts = append(parts, fmt.Sprintf("%d %s", p.Line, text))
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, document string
		want           []string
	}{
		"Plain": {"/a/b", `<a><b>1</b><c/><b x='2'/></a>`, []string{`1 <b>1</b>`, `1 <b x='2'/>`}},
		"Lines": {"/a/b", "<a>\n\n<b>\n</b>\r\n<b/></a>", []string{"3 <b>\n</b>", "5 <b/>"}},
		"ByteExact": {"/a/b", "<a><b  x = \"1\"\r\n>&amp;&#65;<![CDATA[<]]><!-- - --><?p q?>é</b ></a>",
			[]string{"1 <b  x = \"1\"\r\n>&amp;&#65;<![CDATA[<]]><!-- - --><?p q?>é</b >"}},
		"Relative": {"b", `<a><b/><c><b/></c></a>`, []string{`1 <b/>`}},
		"Root":     {"/a", `<a><a/></a>`, []string{`1 <a><a/></a>`}},
		"Any":      {"/a/*", `<a><b/>t<c/></a>`, []string{`1 <b/>`, `1 <c/>`}},
		"Descendants": {"//b", `<a><b><b/></b><c><b/></c></a>`,
			[]string{`1 <b><b/></b>`, `1 <b/>`}},
		"InnerDescent": {"/a//b/c", `<a><x><b><c/><d><c/></d></b></x><c/></a>`, []string{`1 <c/>`}},
		"None":         {"/a/b", `<a><c><b/></c></a>`, nil},
		"OtherRoot":    {"/a/b", `<z><b/></z>`, nil},
		"Prolog": {"/a/b", "\ufeff<?xml version=\"1.0\" encoding='UTF-8'?>\n<!-- c --><a><b/></a>\n<!-- d -->",
			[]string{`2 <b/>`}},
		"Default":      {"/a/b", `<a xmlns="urn:x"><b/></a>`, []string{`1 <b xmlns="urn:x"/>`}},
		"DefaultOwn":   {"/a/b", `<a xmlns="urn:x"><b xmlns=""/></a>`, []string{`1 <b xmlns=""/>`}},
		"DefaultEnded": {"/a/c/b", `<a xmlns="urn:x"><c xmlns=""><b/></c></a>`, []string{`1 <b/>`}},
		"Prefixes": {"/a/b", `<a xmlns:z="urn:z" xmlns:y="urn:y"><b y:i="1"/></a>`,
			[]string{`1 <b xmlns:y="urn:y" xmlns:z="urn:z" y:i="1"/>`}},
		"PrefixOwn": {"/a/b", `<a xmlns:z="urn:z"><b xmlns:z="urn:q"/></a>`,
			[]string{`1 <b xmlns:z="urn:q"/>`}},
		"PrefixedPart": {"/a/b", `<a xmlns:z="urn:z"><z:b/></a>`,
			[]string{`1 <z:b xmlns:z="urn:z"/>`}},
		"Nearest": {"/a/c/b", `<a xmlns:z="urn:1"><c xmlns:z="urn:2"><b/></c></a>`,
			[]string{`1 <b xmlns:z="urn:2"/>`}},
		"Ended": {"/a/b", `<a><c xmlns:z="urn:z"/><b/></a>`, []string{`1 <b/>`}},
		"Escaped": {"/a/b", `<a xmlns:z="urn:&quot;&lt;&amp;'"><b/></a>`,
			[]string{`1 <b xmlns:z="urn:&#34;&lt;&amp;&#39;"/>`}},
		"InNamespace": {"/{urn:x}a/{urn:y}b", `<a xmlns="urn:x"><b/><b xmlns="urn:y"/></a>`,
			[]string{`1 <b xmlns="urn:y"/>`}},
		"NoNamespace": {"/a/{}b", `<a xmlns="urn:x"><b/><b xmlns=""/></a>`,
			[]string{`1 <b xmlns=""/>`}},
		"WrittenPrefix": {"/a/p:b", `<a xmlns:p="urn:p"><b/><p:b/></a>`,
			[]string{`1 <p:b xmlns:p="urn:p"/>`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, in := range map[string]io.Reader{"whole": strings.NewReader(c.document),
				"by bytes": iotest.OneByteReader(strings.NewReader(c.document))} {
				got, err := splitText(t, in, "application/xml", c.path)
				if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("%s: got the parts %q and the error %v, want %q", how, got,
						err, c.want)
				}
			}
		})
	}
}

// The parts of a document in another encoding are in UTF-8, and have a Content-Type that says so.
func TestSplit_Encodings(t *testing.T) {
	t.Parallel()
	const want = `["2 <b k=\"ä€\">ü</b>" "3 <b k=\"ö\"/>"]`
	text := "<a>\n<b k=\"ä€\">ü</b>\n<b k=\"ö\"/></a>"
	encode := func(to *charmap.Charmap, text string) string {
		encoded, err := to.NewEncoder().String(text)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}

	windows := encode(charmap.Windows1252, "<?xml version='1.0' encoding='Windows-1252'?>"+text)
	for name, c := range map[string]struct{ contentType, document, partType, want string }{
		"UTF-8": {"text/xml; charset=UTF-8", text, "text/xml; charset=UTF-8", want},
		"windows-1252": {"text/xml; charset=windows-1252", windows,
			"text/xml; charset=utf-8", want},
		"declared": {"application/xml", windows, "application/xml; charset=utf-8", want},
		"iso-8859-1": {"text/xml; charset=latin1",
			encode(charmap.ISO8859_1, strings.Replace(text, "€", "é", 1)),
			"text/xml; charset=utf-8", strings.Replace(want, "€", "é", 1)},
		"utf-16 with a mark": {"application/xml; charset=utf-16", utf16Bytes(text, true),
			"application/xml; charset=utf-8", want},
		"utf-16 by its mark alone": {"",
			utf16Bytes(`<?xml version="1.0" encoding="UTF-16"?>`+text, false),
			"application/xml; charset=utf-8", want},
		"utf-16le": {"text/xml; charset=utf-16le", utf16Bytes(text, false)[2:],
			"text/xml; charset=utf-8", want},
		"utf-16be": {"text/xml; charset=utf-16be", utf16Bytes(text, true)[2:],
			"text/xml; charset=utf-8", want},
		"us-ascii": {"text/xml; charset=us-ascii", "<a>\n<b>1</b></a>",
			"text/xml; charset=us-ascii", `["2 <b>1</b>"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, in := range map[string]io.Reader{"whole": strings.NewReader(c.document),
				"by bytes": iotest.OneByteReader(strings.NewReader(c.document))} {
				got, err := splitText(t, in, c.contentType, "/a/b")
				if err != nil || fmt.Sprintf("%q", got) != c.want {
					t.Errorf("%s: got the parts %q and the error %v, want %s", how, got,
						err, c.want)
				}
			}

			s, err := newSet(t).Split(strings.NewReader(c.document), c.contentType)
			if err != nil || s.PartType() != c.partType {
				t.Errorf("got the type %q and the error %v, want %s", s.PartType(), err, c.partType)
			}
		})
	}
}

func TestSplit_SeveralPaths(t *testing.T) {
	t.Parallel()
	got, err := splitText(t, strings.NewReader(`<a><b/><c><d/></c></a>`), "text/xml; charset=utf-8",
		"/a/c/d", "/a/b")
	if want := `["1 <b/>" "1 <d/>"]`; err != nil || fmt.Sprintf("%q", got) != want {
		t.Errorf("got %q, %v, want %s", got, err, want)
	}
}

// For each document, Split or Next must return an error of the given kind with the given words.
func TestSplit_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType, document string
		kind                  weir.Kind
		says                  string
	}{
		"Empty":          {"", "", weir.Malformed, "empty"},
		"OnlySpace":      {"", "  \n", weir.Malformed, "no element"},
		"OnlyMark":       {"", "\ufeff", weir.Malformed, "no element"},
		"Text":           {"", "hello", weir.Malformed, "text outside"},
		"TextBehind":     {"", "<a><b/></a>x", weir.Malformed, "text outside"},
		"JSON":           {"application/json", `{}`, weir.Unsupported, "must be XML"},
		"UnknownCharset": {"text/xml; charset=ebcdic", `<a/>`, weir.Unsupported, "encoding"},
		"UTF16Unmarked":  {"", "<\x00a\x00/\x00>\x00", weir.Malformed, "byte order mark"},
		"NotUTF16": {"", "<?xml version='1.0' encoding='utf-16'?><a/>", weir.Malformed,
			"the bytes are UTF-8"},
		"HalfCharacter": {"text/xml; charset=utf-16le", "<\x00a\x00/\x00>", weir.Malformed,
			"UTF-16LE"},
		"LoneSurrogate": {"text/xml; charset=utf-16be", "\x00<\xdc\x00\x00a\x00/", weir.Malformed,
			"UTF-16BE"},
		"NotWindows1252": {"text/xml; charset=windows-1252", "<a>\x81</a>", weir.Malformed,
			"WINDOWS-1252"},
		"Gzip": {"", "\x1f\x8b\x08\x00", weir.Unsupported, "gzip"},
		"TwoEncodings": {"text/xml; charset=us-ascii",
			"<?xml version='1.0' encoding='utf-8'?><a>ä</a>", weir.Malformed, "says"},
		"NoASCII":         {"text/xml; charset=us-ascii", "<a>ä</a>", weir.Malformed, "US-ASCII"},
		"Version":         {"", "<?xml version='1.1'?><a/>", weir.Malformed, "1.1"},
		"Declaration":     {"", "<?xml nothing?><a/>", weir.Malformed, "declaration"},
		"LateDeclaration": {"", " <?xml version='1.0'?><a/>", weir.Malformed, "declaration"},
		"NotUTF8":         {"", "<a>\xff</a>", weir.Malformed, "UTF-8"},
		"NotUTF8Comment":  {"", "<a><!--\xff--></a>", weir.Malformed, "UTF-8"},
		"NotUTF8Tag":      {"", "<a c='\xff'/>", weir.Malformed, "UTF-8"},
		"Control":         {"", "<a><!--\x01--></a>", weir.Malformed, "U+0001"},
		"DocumentType": {"", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", weir.Malformed,
			"line 1, column 1: the document type declaration has an internal subset"},
		"Entities": {"", `<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>`, weir.Malformed,
			"document type"},
		"UnknownEntity":    {"", "<a>&nbsp;</a>", weir.Malformed, "entity"},
		"NotClosed":        {"", "<a><b/>", weir.Malformed, "not closed"},
		"PartNotClosed":    {"", "<a><b>", weir.Malformed, "not closed"},
		"CutOffTag":        {"", "<a><b/></a", weir.Malformed, ""},
		"Crossed":          {"", "<a><b></a></b>", weir.Malformed, "closed by"},
		"CrossedInPart":    {"", "<a><b><c></b></c></a>", weir.Malformed, "closed by"},
		"ClosedTwice":      {"", "<a></a></a>", weir.Malformed, "closes nothing"},
		"TwoRoots":         {"", "<a/><a/>", weir.Malformed, "more than one root"},
		"UnknownPrefix":    {"", "<p:a/>", weir.Malformed, "prefix"},
		"UnknownAttribute": {"", "<a p:x='1'/>", weir.Malformed, "prefix"},
		"AttributeTwice":   {"", "<a x='1' x='2'/>", weir.Malformed, "twice"},
		"NoSpace":          {"", "<a x='1'y='2'/>", weir.Malformed, "space"},
		"UnboundPrefix":    {"", "<a xmlns:p=''/>", weir.Malformed, "bound to nothing"},
		"XMLPrefix":        {"", "<a xmlns:xml='urn:x'/>", weir.Malformed, "must not be bound"},
		"Unquoted":         {"", "<a x=1/>", weir.Malformed, ""},
		"InstructionColon": {"", "<a><?p:q ?></a>", weir.Malformed, "colon"},
		"TooDeep":          {"", strings.Repeat("<c>", 30), weir.Malformed, "deep"},
		"TooDeepInPart":    {"", "<a><b>" + strings.Repeat("<c>", 30), weir.Malformed, "deep"},
		"LargeText": {"", "<a>" + strings.Repeat("x", 300<<10) + "</a>",
			weir.TooLarge, "over"},
		"LargeComment": {"", "<a><!--" + strings.Repeat("x", 300<<10) + "--></a>",
			weir.TooLarge, "over"},
		"LargeTag": {"", "<a x='" + strings.Repeat("x", 300<<10) + "'/>",
			weir.TooLarge, "over"},
		"LargeTextInPart": {"", "<a><b>" + strings.Repeat("x", 300<<10) + "</b></a>",
			weir.TooLarge, "over"},
		"InheritsTooMuch": {"", "<a xmlns:p='" + strings.Repeat("x", 5000) + "'><b/></a>",
			weir.Malformed, "inherits"},
		"SecondDeclaration": {"", "<a/>\n<?xml version='1.0'?>", weir.Malformed, "declaration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := splitText(t, strings.NewReader(c.document), c.contentType, "/a/b")
			if weir.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got the error %v, want kind %d and %q", err, c.kind, c.says)
			}
		})
	}
}

// A part that is too large has an error in Part.Err, and the Splitter still returns the other
// parts.
func TestSplit_LargePart(t *testing.T) {
	t.Parallel()
	large := "<b>" + strings.Repeat("<c>text</c>", 100<<10) + "</b>"
	got, err := splitText(t, strings.NewReader("<a><b/>"+large+"\n<b/></a>"), "", "/a/b")
	if err != nil || len(got) != 3 || got[0] != "1 <b/>" || !strings.Contains(got[1], "over") ||
		got[2] != "2 <b/>" {
		t.Errorf("got %.200q, %v, want three parts, the second with an error that it is too large",
			got, err)
	}
}

func TestSplit_ReadError(t *testing.T) {
	t.Parallel()
	failed := errors.New("storage is away")
	in := io.MultiReader(strings.NewReader("<a><b/>"+strings.Repeat(" ", 8<<10)),
		iotest.ErrReader(failed))
	if got, err := splitText(t, in, "", "/a/b"); !errors.Is(err, failed) || len(got) != 1 {
		t.Errorf("got %q, %v, want one part and the reader's error", got, err)
	}
}

func TestCompileSplitPath_Refuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/", "//", "/a/", "/a///b", "/a/b[1]", "/a/b[@x='1']",
		"/a/@b", "a/..", ".", "/a b",
		"/{urn:x", "/a/@{urn:x}b", "/1", "/a|b", strings.Repeat("/a", 64)} {
		if p, err := contract.CompileSplitPath(path); err == nil {
			t.Errorf("%q: got %v, want an error", path, p)
		}
	}
}

// The Splitter keeps only one part in memory at a time: a document of 24 MiB with parts of 40 KiB
// takes less than 8 MiB.
func TestSplit_Memory(t *testing.T) {
	part := []byte("<b>" + strings.Repeat("<c>some text</c>", 2500) + "</b>")
	count := 24 << 20 / len(part)
	readers := make([]io.Reader, 0, count+2)
	readers = append(readers, strings.NewReader("<a>"))
	for range count {
		readers = append(readers, bytes.NewReader(part))
	}

	readers = append(readers, strings.NewReader("</a>"))
	path, err := contract.CompileSplitPath("/a/b")
	if err != nil {
		t.Fatal(err)
	}

	s, err := newSet(t).Split(io.MultiReader(readers...), "", path)
	if err != nil {
		t.Fatal(err)
	}

	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	for n := range count {
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}

		if n%400 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}

	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("got the error %v after %d parts, want io.EOF", err, count)
	}

	if most > before.HeapAlloc+8<<20 {
		t.Errorf("got %d bytes more in the heap, want less than 8 MiB", most-before.HeapAlloc)
	}
}

// timeSplit returns the least time of up to ten splits. It ends earlier if a split takes at most
// the time "most". One split alone can take any time on a busy machine.
func timeSplit(t *testing.T, document string, most time.Duration) time.Duration {
	t.Helper()
	least := time.Duration(math.MaxInt64)
	for tries := 0; tries < 10 && least > most; tries++ {
		began := time.Now()
		if parts, err := splitText(t, strings.NewReader(document), "", "/a/b"); err != nil ||
			len(parts) != 1000 {
			t.Fatalf("got %d parts and %v, want 1000", len(parts), err)
		}
		least = min(least, time.Since(began))
	}

	return least
}

// Thousands of namespaces must not make the Splitter much slower. The case InScope has many
// elements inside the element that declares the namespaces. In the case Ended, that element ends
// before the parts.
func TestSplit_ManyNamespaces(t *testing.T) {
	t.Parallel()
	var declarations strings.Builder
	for n := range 4000 {
		fmt.Fprintf(&declarations, " xmlns:n%d='u'", n)
	}

	parts := strings.Repeat("<b/>", 1000)
	plain := "<a>" + parts + "<d>" + strings.Repeat("<c/>", 20_000) + "</d></a>"
	most := 20*timeSplit(t, plain, time.Hour) + time.Second
	for name, document := range map[string]string{
		"InScope": "<a>" + parts + "<d" + declarations.String() + ">" +
			strings.Repeat("<c/>", 20_000) + "</d></a>",
		"Ended": "<a><d" + declarations.String() + "/>" + parts + "</a>",
	} {
		if took := timeSplit(t, document, most); took > most {
			t.Errorf("%s: took %s; want %s at most, 20 times the time of a document without namespaces and 1 s", name,
				took, most)
		}
	}
}

// A prefix takes no memory after its element has ended.
func TestSplit_ForgetsNamespaces(t *testing.T) {
	var document strings.Builder
	document.WriteString("<a>")
	for n := range 200_000 {
		fmt.Fprintf(&document, "<c xmlns:n%d='u'/>", n)
	}

	document.WriteString("<b/></a>")
	path, err := contract.CompileSplitPath("/a/b")
	if err != nil {
		t.Fatal(err)
	}

	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := newSet(t).Split(strings.NewReader(document.String()), "", path)
	if err == nil {
		_, err = s.Next()
	}

	if err != nil {
		t.Fatal(err)
	}

	runtime.GC()
	runtime.ReadMemStats(&now)

	if now.HeapAlloc > before.HeapAlloc+8<<20 {
		t.Errorf("got %d bytes more in the heap, want less than 8 MiB",
			now.HeapAlloc-before.HeapAlloc)
	}

	runtime.KeepAlive(s)
}

// Each part must be a complete document by itself: a Splitter of the part alone, with the path /*,
// must return the same bytes.
func FuzzSplit(f *testing.F) {
	f.Add(`<a xmlns:p="urn:p"><b>1</b><p:b/></a>`, "/a/b")
	f.Add("<a>\n<b x='1'><c/></b></a>", "//b")
	f.Add(`<?xml version="1.0"?><a xmlns="urn:x"><b xmlns=""/></a>`, "/{urn:x}a/*")
	f.Add(`<a xml:base="http://h/x/" xml:lang="de"><b xml:base = '../y'/></a>`, "/a/b")
	f.Fuzz(func(t *testing.T, document, path string) {
		p, err := contract.CompileSplitPath(path)
		if err != nil {
			return
		}

		s, err := newSet(t).Split(strings.NewReader(document), "", p)
		for n := 0; err == nil; n++ {
			var part contract.Part
			if part, err = s.Next(); err != nil || part.Err != nil {
				continue
			}

			if n > len(document) {
				t.Fatalf("got part %d of a document of %d bytes, want no more parts than bytes", n,
					len(document))
			}

			whole, err := contract.CompileSplitPath("/*")
			if err != nil {
				t.Fatal(err)
			}

			alone, err := newSet(t).Split(bytes.NewReader(part.Body), "", whole)
			if err != nil {
				t.Fatalf("Split of part %q = %v, want no error", part.Body, err)
			}

			if same, err := alone.Next(); err != nil || !bytes.Equal(same.Body, part.Body) {
				t.Fatalf("part %q alone: got %q, %v, want Body %q and no error", part.Body,
					same.Body, err, part.Body)
			}
		}
	})
}
