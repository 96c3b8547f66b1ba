package contract

import (
	"bytes"
	"fmt"
	"io"
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

// A text is valid exactly if golang.org/x/text encodes it back to the same bytes, or if it has
// second codes (TestEncodings_SecondCodes). ISO-2022-JP has many spellings of one text, and is left
// out (TestEncodings_EscapesOfISO2022JP).
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
		if hasSecondCode(name, body) {
			isValid = ok
		}
		if ok != isValid || ok && got != string(want) {
			t.Errorf("%s % x: got %q, valid %t; want %q, valid %t, as % x", name, body, got, ok,
				want, isValid, back)
		}
	}
}

// hasSecondCode reports whether a text has a valid second code of a character.
func hasSecondCode(name string, body []byte) bool {
	next := decoderOf(name)
	for len(body) > 0 {
		_, size := next(body)
		if size == 0 {
			return false
		}
		if isAdded(name, body[:size]) {
			return true
		}
		body = body[size:]
	}

	return false
}

// isAdded reports whether a code does not encode back to itself.
func isAdded(name string, code []byte) bool {
	known := multiByte[name]
	if known == nil {
		return false
	}

	text, err := known.NewDecoder().Bytes(code)
	back, err2 := known.NewEncoder().Bytes(text)

	return err != nil || err2 != nil || !bytes.Equal(back, code)
}

// Some characters have two codes. Weir accepts the second code if all decoders read it alike, and
// so takes the names and everyday words of Windows' own documents. It refuses a code that decoders
// read in several ways. The numbers are those of a comparison with the decoders of Java, Python and
// glibc.
func TestEncodings_SecondCodes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		count          int
		texts, refused map[string]string
	}{
		"shift_jis": {398, map[string]string{
			"\xfb\xfc\x8b\xb4": "髙橋", "\xfa\xb1": "﨑", "\xed\x61": "僘", "\x87\x9a": "∵",
			"\xfa\x5b": "∵", "\x81\xe6": "∵"}, map[string]string{"\x80": "", "\xf0\x40": ""}},
		"euc-jp": {289, map[string]string{"\xad\xfa": "∵", "\x8f\xb0\xa1": "丂",
			"\x8f\xb0\xaf": "乀"}, map[string]string{"\xfc\xfb": "", "\x8f\xa2\xb7": ""}},
		"big5": {29, map[string]string{"\xb4\xe4": "港", "\xa5\x5d": "包", "\xa2\xcc": "十"},
			map[string]string{"\x8e\x69": "", "\xc6\xcf": ""}},
		"gbk":     {0, nil, map[string]string{"\xa2\xe3": "", "\xa3\xa0": ""}},
		"gb18030": {0, nil, map[string]string{"\x80": "", "\xa3\xa0": ""}},
		"euc-kr":  {0, nil, map[string]string{"\xc9\x41": ""}},
	} {
		for code, text := range want.texts {
			if got, ok := convertToUTF8([]byte(code), name); !ok || got != text {
				t.Errorf("%s % x: got %q, valid %t; want %q", name, code, got, ok, text)
			}
		}

		for code := range want.refused {
			if got, ok := convertToUTF8([]byte(code), name); ok {
				t.Errorf("%s % x: got %q; want it refused", name, code, got)
			}
		}

		if got := countAdded(t, name); got != want.count {
			t.Errorf("%s: got %d second codes, want %d", name, got, want.count)
		}
	}
}

// countAdded counts the valid codes that do not encode back, and checks their characters.
func countAdded(t *testing.T, name string) (count int) {
	t.Helper()
	table := tableOf(name)
	check := func(code []byte, r rune) {
		if text, _ := multiByte[name].NewDecoder().Bytes(code); string(text) != string(r) {
			t.Errorf("%s % x: got %q, want %q", name, code, r, text)
		}
		if isAdded(name, code) {
			count++
		}
	}

	for i, r := range table.characters {
		if r != 0 && i > 0xFF {
			check([]byte{byte(i >> 8), byte(i)}, r)
		}
	}

	for rest, r := range table.threes {
		check([]byte{firstOfThree, rest[0], rest[1]}, r)
	}

	return count
}

// ISO-2022-JP has many spellings of one text: escape sequences can be redundant, and stand at the
// start and at the end. A redacted view leaves the rest as it was, also if the replaced value is
// where the state changes.
func TestEncodings_EscapesOfISO2022JP(t *testing.T) {
	t.Parallel()
	const ascii, roman, pairs, port = "\x1b(B", "\x1b(J", "\x1b$B", "9A"
	set, err := New([]Definition{{Name: "r", Root: "r", Redact: []string{"./s"},
		Show: []ShownField{{Name: "T", Path: "./t"}}}}, Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	path, err := CompileSplitPath("/r/t")
	if err != nil {
		t.Fatal(err)
	}

	const contentType = "text/xml; charset=iso-2022-jp"
	for name, c := range map[string]struct{ document, shown, redacted string }{
		"at the end": {"<r><t>" + pairs + port + ascii + "</t></r>" + ascii, "港",
			"<r><t>港</t></r>"},
		"at the end, to pairs": {"<r><t>a</t></r>\n" + ascii + pairs, "a", "<r><t>a</t></r>\n"},
		"at the start": {ascii + ascii + ascii + "<?xml version='1.0' encoding='ISO-2022-JP'?>" +
			"<r><t>a</t></r>", "a", strings.Repeat(" ", 44) + "<r><t>a</t></r>"},
		"many": {"<r><t>" + strings.Repeat(pairs+ascii, 99) + "a" + strings.Repeat(roman, 99) + "~" +
			pairs + pairs + port + ascii + ascii + "</t></r>", "a‾港", "<r><t>a‾港</t></r>"},
		"in a hidden value": {"<r><s>" + pairs + port + ascii + roman + "~</s><t>~</t></r>", "‾",
			"<r><s>[redacted]</s><t>‾</t></r>"},
		"in a hidden value, back": {roman + "<r><s>" + ascii + "~</s><t>~" + pairs + port + ascii +
			"</t></r>", "~港", "<r><s>[redacted]</s><t>~港</t></r>"},
	} {
		found, err := set.Check(t.Context(), contentType, []byte(c.document))
		if err != nil || found.Message.Shown["T"] != c.shown ||
			string(found.Message.Body) != c.document {
			t.Errorf("%s: got %q, %v; want %q", name, found.Message.Shown, err, c.shown)
		}

		redacted, err := set.Redact(t.Context(), "r", contentType, []byte(c.document))
		text, _ := decodeBody(redacted.Body, iso2022JP)
		if err != nil || text != c.redacted {
			t.Errorf("%s: redacted to %q, %v; want %q", name, text, err, c.redacted)
		}

		split, err := set.Split(iterReader(c.document), contentType, path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		part, err := split.Next()
		if want := "<t>" + c.shown + "</t>"; err != nil || string(part.Body) != want {
			t.Errorf("%s: got the part %q, %v; want %q", name, part.Body, err, want)
		}
		if _, err := split.Next(); err != io.EOF {
			t.Errorf("%s: got %v, want io.EOF", name, err)
		}
	}

	for _, bad := range []string{"\x1b", "\x1b$", "\x1b(H", "\x1b$(D0!", pairs + "9"} {
		if got, ok := convertToUTF8([]byte(bad), iso2022JP); ok {
			t.Errorf("% x: got %q; want it refused", bad, got)
		}
	}
}

// Each name that the trade, Python, Java, .NET, ICU and browsers write for an accepted encoding is
// taken for it. A name of another encoding is refused, and named.
func TestEncodings_Names(t *testing.T) {
	t.Parallel()
	for want, names := range map[string]string{
		"utf-8":        "UTF-8 utf8 UTF_8 utf-8-sig cp65001 unicode-1-1-utf-8 csUTF8",
		"utf-16":       "UTF-16 utf16 UTF_16 ISO-10646-UCS-2 UCS-2 unicode csUnicode",
		"utf-16le":     "UTF-16LE utf_16_le X-UTF-16LE UnicodeLittle",
		"utf-16be":     "UTF-16BE utf_16_be X-UTF-16BE UnicodeBig unicodeFFFE",
		"us-ascii":     "ASCII us-ascii us_ascii ANSI_X3.4-1968 iso-ir-6 ISO646-US IBM367 csASCII",
		"iso-8859-1":   "ISO-8859-1 iso8859-1 ISO8859_1 8859_1 latin1 latin-1 l1 cp819 IBM819 iso-ir-100 csISOLatin1",
		"iso-8859-2":   "iso8859-2 latin2 latin-2 latin_2 l2 ISO_8859-2:1987 iso-ir-101",
		"iso-8859-5":   "cyrillic ISO8859_5 csISOLatinCyrillic",
		"iso-8859-6":   "arabic ASMO-708 iso-8859-6-e ISO-8859-6-I",
		"iso-8859-7":   "greek greek8 ECMA-118 ELOT_928",
		"iso-8859-8":   "hebrew iso-8859-8-i ISO-8859-8-E logical visual csISOLatinHebrew",
		"iso-8859-9":   "latin5 l5 ISO8859-9",
		"iso-8859-13":  "ISO8859-13 latin7",
		"iso-8859-15":  "latin-9 Latin9 ISO_8859-15 iso8859-15",
		"windows-874":  "TIS-620 tis620 iso-8859-11 ISO8859_11 cp874 x-windows-874",
		"windows-1250": "cp1250 windows_1250 x-cp1250 cswindows1250",
		"windows-1251": "cp1251 CP-1251 win-1251 win1251 Windows1251 x-cp1251",
		"windows-1252": "cp1252 Cp-1252 windows_1252 x-cp1252",
		"koi8-r":       "KOI8_R koi8 koi csKOI8R",
		"koi8-u":       "KOI8_U koi8-ru",
		"ibm437":       "cp437 437 ibm-437 csPC8CodePage437",
		"ibm850":       "cp850 850 IBM850 csPC850Multilingual",
		"ibm00858":     "cp858 IBM00858 CCSID00858 858",
		"ibm866":       "cp866 866 IBM866",
		"macintosh":    "mac macroman x-mac-roman MacRoman mac_roman",
		"shift_jis": "Shift_JIS shift-jis sjis x-sjis MS_Kanji ms932 cp932 windows-31j " +
			"Windows-932 csWindows31J csShiftJIS",
		"euc-jp":      "EUC_JP eucjp x-euc-jp ujis csEUCPkdFmtJapanese cp51932",
		"iso-2022-jp": "ISO2022JP iso2022_jp csISO2022JP",
		"gbk":         "GB2312 gb_2312-80 csGB2312 euc-cn EUC_CN x-euc-cn chinese cp936 MS936 windows-936 x-gbk",
		"gb18030":     "GB18030 gb18030-2000",
		"big5":        "Big5 big5-eten cn-big5 csBig5 cp950 ms950 x-windows-950 Big5-HKSCS big5_hkscs",
		"euc-kr":      "EUC_KR ks_c_5601-1987 KSC5601 ks_x_1001 korean cp949 MS949 uhc windows-949 csKSC56011987",
	} {
		for name := range strings.FieldsSeq(names) {
			if got, ok := encodingName(name); !ok || got != want {
				t.Errorf("%s: got %q, known %t; want %q", name, got, ok, want)
			}
		}
	}

	for name := range strings.FieldsSeq("utf-7 utf-32 UTF-32LE ISO-10646-UCS-4 cesu-8 ebcdic-cp-us " +
		"cp037 ibm1047 IBM01140 hz-gb-2312 iso-2022-kr iso-2022-cn iso-2022-jp-2 iso-2022-jp-3 " +
		"euc-tw eucjp-ms euc-jisx0213 shift_jis-2004 x-sjis_0213 johab jis_x0201 viscii hp-roman8 " +
		"x-mac-cyrillic iso-8859-12 iso-8859-17 windows-1259 cp12520 ansi binary x-user-defined " +
		"macgreek gbk2 125 8859 cp - _") {
		if got, ok := encodingName(name); ok {
			t.Errorf("%s: got %q; want it refused", name, got)
		}

		_, err := canonicalEncoding(name, "XML declaration")
		if text := fmt.Sprint(err); !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("%s: got %s; want its name", name, text)
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
		"euc-jp": "\x8f\xa2\xb7", "gbk": "\xff",
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
