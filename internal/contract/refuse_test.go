package contract_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// statuses are the HTTP statuses with which package httpio answers the errors of Accept.
var statuses = map[weir.Kind]int{weir.Malformed: 400, weir.TooLarge: 413, weir.Unsupported: 415,
	weir.Invalid: 422, weir.Unavailable: 503}

// problemOf returns the first problem of an error. If the error has no problems, problemOf returns
// a problem with the error's message.
func problemOf(t testing.TB, err error) weir.Problem {
	t.Helper()
	var e *weir.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v, want a *weir.Error", err, err)
	}

	if len(e.Problems) == 0 {
		return weir.Problem{Message: e.Message}
	}

	return e.Problems[0]
}

const xml = "application/xml"

var long = strings.Repeat("x", 1100)

const accepted = "UTF-8, UTF-16, US-ASCII, ISO-8859-x, Windows-125x, KOI8-R, KOI8-U, Shift_JIS, EUC-JP, " +
	"ISO-2022-JP, GB2312, GBK, GB18030, Big5, EUC-KR and the code pages of DOS and Mac OS are"

const internalSubset = "the document type declaration has an internal subset, which is not accepted; " +
	"send the document without the part from [ to ]"

type refusal struct {
	kind, body string
	status     int
	path, rule string // path and rule of the first problem
	message    string // the message of the first problem, or of an error without problems
}

// newArticle returns an article with a title, and with the given attributes and children.
func newArticle(attributes, rest string) string {
	return "<article " + attributes + "><title>x</title>" + rest + "</article>"
}

// A document that comes as a text is in UTF-8, whatever it says of itself.
func TestCheckText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text, want string // want "" = no error
	}{
		{"", "<a>ä</a>", ""}, {"text/xml; charset=utf-8", "<a>ä</a>", ""},
		{"", "<?xml version='1.0' encoding='iso-8859-1'?><a/>", ""},
		{"", "<?xml version='1.0' encoding='iso-8859-1'?><a>ä</a>", "says ISO-8859-1"},
		{"text/xml; charset=windows-1252", "<a>ä</a>", "says WINDOWS-1252"},
		{"text/xml; charset=us-ascii", "<a>ä</a>", "says US-ASCII"},
		{"", "<?xml version='1.0' encoding='utf-16'?><a/>", "the bytes are UTF-8"},
		{"text/xml; charset=koi8-r", "<a>ä</a>", "says KOI8-R"},
		{"text/xml; charset=utf-7", "<a/>", "utf-7"}, {"text/plain", "<a/>", "must be XML"},
	} {
		err := contract.CheckText(c.kind, c.text)
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: got %v, want %q", c.kind, c.text, err, c.want)
		}
	}
}

var notXML = []refusal{
	{xml, "   ", 400, "", "xml", "there is no element"},
	{xml, "hello", 400, "", "xml", `there is text before the root element: "hello"`},
	{xml, `{"title":"a <b> of some length"}`, 400, "", "xml",
		`there is text before the root element: "{\"title\":\"a"`},
	{xml, "<a", 400, "", "xml", "unexpected EOF"},
	{xml, "<a>", 400, "", "xml", "element <a> is not closed"},
	{xml, "<a></b>", 400, "", "xml", "element <a> is closed by </b>"},
	{xml, "</a>", 400, "", "xml", "</a> closes nothing"},
	{xml, "<a/><b/>", 400, "", "xml", "there is more than one root element"},
	{xml, "<a/>tail", 400, "", "xml", "there is text after the root element"},
	{xml, "<a/><![CDATA[ ]]>", 400, "", "xml", "there is text after the root element"},
	{xml, "<a/>&#32;", 400, "", "xml", "there is text after the root element"},
	{xml, "\xEF\xBB\xBF\xEF\xBB\xBF<a/>", 400, "", "xml",
		`there is text before the root element: "\ufeff"`},
	{xml, "<a x=1/>", 400, "", "xml", "unquoted or missing attribute value in element"},
	{xml, "<a x/>", 400, "", "xml", "attribute name without = in element"},
	{xml, `<a x="<"/>`, 400, "", "xml", "unescaped < inside quoted string"},
	{xml, `<a x="1"y="2"/>`, 400, "", "xml", "there is no space between two attributes"},
	{xml, `<a x="1" x="2"/>`, 400, "", "xml", `the attribute "x" appears twice`},
	{xml, `<a xmlns="u" xmlns="u"/>`, 400, "", "xml", `the attribute "xmlns" appears twice`},
	{xml, `<a xmlns:p="u" xmlns:q="u" p:x="1" q:x="2"/>`, 400, "", "xml",
		`the attribute "q:x" appears twice`},
	{xml, "<p:a/>", 400, "", "xml", `the namespace prefix "p" is not declared`},
	{xml, `<a p:x="1"/>`, 400, "", "xml", `the namespace prefix "p" is not declared`},
	{xml, `<a><b xmlns:p="u"/><p:c/></a>`, 400, "", "xml",
		`the namespace prefix "p" is not declared`},
	{xml, `<a xmlns:p=""/>`, 400, "", "xml", `the namespace prefix "p" is bound to nothing`},
	{xml, `<a xmlns:xml="u"/>`, 400, "", "xml",
		`the namespace prefix "xml" must not be bound to this namespace`},
	{xml, `<a xmlns:xmlns="u"/>`, 400, "", "xml",
		`the namespace prefix "xmlns" must not be bound to this namespace`},
	{xml, `<a xmlns="http://www.w3.org/XML/1998/namespace"/>`, 400, "", "xml",
		`the namespace prefix "" must not be bound to this namespace`},
	{xml, "<:a/>", 400, "", "xml", `":a" is not a name`},
	{xml, `<a b:="1"/>`, 400, "", "xml", `"b:" is not a name`},
	{xml, `<a xmlns:p="u"><p:1/></a>`, 400, "", "xml", `"p:1" is not a name`},
	{xml, "<1/>", 400, "", "xml", "invalid XML name: 1"},
	{xml, "<a>&nbsp;</a>", 400, "", "xml",
		"there is no entity &nbsp;; XML knows only &amp; &lt; &gt; &quot; and &apos;"},
	{xml, "<a>B&B</a>", 400, "", "xml", "an & begins no entity; write & as &amp;"},
	{xml, "<a>B & C</a>", 400, "", "xml", "an & begins no entity; write & as &amp;"},
	{xml, "<a>&#0;</a>", 400, "", "xml", "illegal character code U+0000"},
	{xml, "<a>&#xD800;</a>", 400, "", "xml", "the reference &#xD800; names no character"},
	{xml, `<a x="&#57343;"/>`, 400, "", "xml", "the reference &#57343; names no character"},
	{xml, "<a>]]></a>", 400, "", "xml", "unescaped ]]> not in CDATA section"},
	{xml, "<a>\x01</a>", 400, "", "xml", "the character U+0001 is not allowed in XML"},
	{xml, "<a><!--\uFFFE--></a>", 400, "", "xml", "the character U+FFFE is not allowed in XML"},
	{xml, "<a><!-- -- --></a>", 400, "", "xml", `invalid sequence "--" not allowed in comments`},
	{xml, "<a><?b!c?></a>", 400, "", "xml",
		"there is no space after the target of a processing instruction"},
	{xml, "<a><?b:c d?></a>", 400, "", "xml", "the target of a processing instruction has a colon"},
	{xml, `<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, 400, "", "xml", internalSubset},
	{xml, `<!DOCTYPE a []><a/>`, 400, "", "xml", internalSubset},
	{xml, `<!DOCTYPE a PUBLIC "p" 's' [<!-- don't --><?p don't?>`, 400, "", "xml", internalSubset},
	{xml, `<a/><!ENTITY x "y">`, 400, "", "xml",
		"a declaration other than <!DOCTYPE stands outside of a document type declaration"},
	{xml, "<!doctype a><a/>", 400, "", "xml",
		"a declaration other than <!DOCTYPE stands outside of a document type declaration"},
	{xml, "<!DOCTYPE a><!DOCTYPE a><a/>", 400, "", "xml",
		"there is more than one document type declaration"},
	{xml, "<a/><!DOCTYPE a>", 400, "", "xml",
		"the document type declaration must stand before the root element"},
	{xml, "<a><!DOCTYPE a></a>", 400, "", "xml",
		"the document type declaration must stand before the root element"},
	{xml, "<!DOCTYPE><a/>", 400, "", "xml", "the document type declaration is not well-formed"},
	{xml, "<!DOCTYPE a b><a/>", 400, "", "xml", "the document type declaration is not well-formed"},
	{xml, "<!DOCTYPE 1a><a/>", 400, "", "xml", "the document type declaration is not well-formed"},
	{xml, "<!DOCTYPE a:b:c><a/>", 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, `<!DOCTYPE a SYSTEM><a/>`, 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, `<!DOCTYPE a PUBLIC "p"><a/>`, 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, `<!DOCTYPE a PUBLIC "ä" "s"><a/>`, 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, `<!DOCTYPE a SYSTEM "s" "t"><a/>`, 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, `<!DOCTYPE a SYSTEM "s><a/>`, 400, "", "xml",
		"the document type declaration is not well-formed"},
	{xml, "<!DOCTYPE a><a>&nbsp;</a>", 400, "", "xml",
		"the entity &nbsp; needs the DTD, which Weir does not load; write the character itself"},
	{xml, "<!DOCTYPE a><a b='&nbsp;'/>", 400, "", "xml",
		"the entity &nbsp; needs the DTD, which Weir does not load; write the character itself"},
	{xml, `<a/><?xml version="1.0"?>`, 400, "", "xml",
		"the XML declaration must stand at the very beginning, once"},
	{xml, ` <?xml version="1.0"?><a/>`, 400, "", "xml",
		"the XML declaration must stand at the very beginning, once"},
	{xml, "<a><?XML b?></a>", 400, "", "xml",
		"the XML declaration must stand at the very beginning, once"},
	{xml, `<?xml version="1.1"?><a/>`, 400, "", "xml", `XML version "1.1" is not accepted, 1.0 is`},
	{xml, `<?xml encoding="utf-8"?><a/>`, 400, "", "xml", "the XML declaration is not well-formed"},
	{xml, `<?xml version="1.0" encoding=""?><a/>`, 400, "", "xml",
		"the XML declaration is not well-formed"},
	{xml, `<?xml version="1.0"encoding="utf-8"?><a/>`, 400, "", "xml",
		"the XML declaration is not well-formed"},
	{xml, strings.Repeat("<a>", 11) + strings.Repeat("</a>", 11), 400, "", "xml",
		"elements are nested more than 10 deep"},
	{xml, "<a>" + strings.Repeat("<b/>", 100) + "</a>", 400, "", "xml",
		"there are too many elements"},
}

var notReadable = []refusal{
	{xml, "", 400, "", "", "the body is empty"},
	{xml, "<a>" + strings.Repeat("x", 64<<10) + "</a>", 413, "", "",
		"the body has 65543 bytes and may have 65536 (maxBody in weir.yaml)"},
	{"application/json", good, 415, "", "",
		"the Content-Type is application/json and must be XML: application/xml, text/xml or one that ends in +xml"},
	{"text/plain", good, 415, "", "",
		"the Content-Type is text/plain and must be XML: application/xml, text/xml or one that ends in +xml"},
	{"x+xml", good, 415, "", "",
		"the Content-Type is x+xml and must be XML: application/xml, text/xml or one that ends in +xml"},
	{"x/+xml", good, 415, "", "",
		"the Content-Type is x/+xml and must be XML: application/xml, text/xml or one that ends in +xml"},
	{"x/", good, 415, "", "", "the Content-Type cannot be read"},
	{"text/xml; charset=utf-8; charset=latin1", good, 415, "", "",
		"the Content-Type cannot be read"},
	{"text/xml; x=\"\x7f\"", good, 415, "", "",
		"the Content-Type may have 256 characters, of printable ASCII"},
	{"text/xml; x=" + long, good, 415, "", "",
		"the Content-Type may have 256 characters, of printable ASCII"},
	{"text/xml; charset=utf-7", good, 415, "", "",
		`the encoding "utf-7" of the charset parameter is not accepted: ` + accepted},
	{xml, `<?xml version="1.0" encoding="IBM037"?><a/>`, 415, "", "",
		`the encoding "ibm037" of the XML declaration is not accepted: ` + accepted},
	{"text/xml; charset=iso-8859-1", `<?xml version="1.0" encoding="UTF-8"?><a>ä</a>`, 400, "",
		"encoding", "the charset parameter says iso-8859-1 and the XML declaration says utf-8"},
	{"text/xml; charset=utf-8", `<?xml version="1.0" encoding="iso-2022-jp"?><a/>`, 400, "",
		"encoding", "the charset parameter says utf-8 and the XML declaration says iso-2022-jp"},
	{"text/xml; charset=iso-8859-1", "\xEF\xBB\xBF<a/>", 400, "", "encoding",
		"the byte order mark says utf-8 and the charset parameter says iso-8859-1"},
	{"text/xml; charset=utf-16be", utf16Bytes(good, false), 400, "", "encoding",
		"the byte order mark says utf-16le and the charset parameter says utf-16be"},
	{xml, utf16Bytes(`<?xml version="1.0" encoding="UTF-8"?><a/>`, true), 400, "", "encoding",
		"the byte order mark says utf-16be and the XML declaration says utf-8"},
	{xml, `<?xml version="1.0" encoding="UTF-16"?><a/>`, 400, "", "encoding",
		"the declaration says UTF-16, and the bytes are UTF-8"},
	{"text/xml; charset=utf-8", `<?xml version="1.0" encoding="utf-16"?><a/>`, 400, "", "encoding",
		"the declaration says UTF-16, and the bytes are UTF-8"},
	{xml, "\xEF\xBB\xBF" + `<?xml version="1.0" encoding="utf-16le"?><a/>`, 400, "", "encoding",
		"the declaration says UTF-16LE, and the bytes are UTF-8"},
	{xml, utf16Bytes(good, true)[2:], 400, "", "encoding",
		"UTF-16 needs a byte order mark, or the charset utf-16le or utf-16be"},
	{"text/xml; charset=utf-16", utf16Bytes(good, false)[2:], 400, "", "encoding",
		"UTF-16 needs a byte order mark, or the charset utf-16le or utf-16be"},
	{"text/xml; charset=utf-16", good, 400, "", "encoding",
		"the charset parameter says UTF-16, and the bytes are UTF-8"},
	{"text/xml; charset=utf-16le", good, 400, "", "encoding",
		"the charset parameter says UTF-16LE, and the bytes are UTF-8"},
	{"text/xml; charset=utf-16le", utf16Bytes(good, true)[2:], 400, "", "encoding",
		"the charset parameter says UTF-16LE, and the bytes are not"},
	{"text/xml; charset=utf-16be", utf16Bytes(good, false)[2:], 400, "", "encoding",
		"the charset parameter says UTF-16BE, and the bytes are not"},
	{xml, "\x1f\x8b\x08\x00abc", 415, "", "",
		"the body is compressed by gzip, and not XML: send it unpacked"},
	{xml, "PK\x03\x04abc", 415, "", "", "the body is a zip, and not XML: send it unpacked"},
	{xml, utf16Bytes(good, false) + "x", 400, "", "encoding", "the body is not valid UTF-16LE"},
	{xml, "\xFE\xFF\x00<\xDC\x00\x00a", 400, "", "encoding", "the body is not valid UTF-16BE"},
	{xml, "<a>\xff</a>", 400, "", "encoding", "the body is not valid UTF-8"},
	{xml, "<a>\xed\xa0\x80</a>", 400, "", "encoding", "the body is not valid UTF-8"},
	{"text/xml; charset=windows-1252", "<a>\x81</a>", 400, "", "encoding",
		"the body is not valid WINDOWS-1252"},
	{"text/xml; charset=us-ascii", "<a>ä</a>", 400, "", "encoding",
		"the body is not valid US-ASCII"},
}

var notByContract = []refusal{
	{xml, "<other/>", 422, "/", "contract", "no contract accepts the root element other"},
	{xml, `<x:other xmlns:x="urn:x"/>`, 422, "/", "contract",
		"no contract accepts the root element {urn:x}other"},
	{xml, newArticle(`version="1"`, ""), 422, "./@path", "required", "the ordering key is missing"},
	{xml, newArticle(`path=" " version="1"`, ""), 422, "./@path", "required",
		"the ordering key is missing"},
	{xml, newArticle(`xmlns:x="u" x:path="/a" version="1"`, ""), 422, "./@path", "required",
		"the ordering key is missing"},
	{xml, newArticle(`path="/a"`, ""), 422, "./@version", "required", "the version is missing"},
	{xml, newArticle(`path="`+long+`" version="1"`, ""), 422, "./@path", "max=1024",
		"the ordering key has 1100 bytes and may have 1024"},
	{xml, newArticle(`path="a&#10;b" version="1"`, ""), 422, "./@path", "printable",
		"the ordering key has control characters"},
	{xml, newArticle("path=\"a\u0085b\" version=\"1\"", ""), 422, "./@path", "printable",
		"the ordering key has control characters"},
	{xml, `<entry><id>1</id><id>2</id><id>1</id></entry>`, 422, "./id", "one",
		"the ordering key has 2 different values and must have one"},
	{xml, `<entry><id/><id>2</id></entry>`, 422, "./id", "one",
		"the ordering key has 2 different values and must have one"},
	{xml, `<article path="/a" version="1"/>`, 422, "./title", "required",
		"./title is required and is missing or empty"},
	{xml, `<article path="/a" version="1"><title> </title><title/></article>`, 422, "./title",
		"required", "./title is required and is missing or empty"},
	{xml, `<article path="/a" version="1"><title>` + long + `</title></article>`, 422,
		"./title", "max=20",
		`./title is "` + long[:80] + `…" with 1100 characters, and must have at most 20`},
	{xml, newArticle(`path="/a" version="1"`, "<tag>ok</tag><tag>not ok</tag>"), 422, "./tag",
		"alphanum", `./tag is "not ok" and must satisfy alphanum`},
	{xml, newArticle(`path="/a" version="1"`, `<link href="nope"/>`), 422, "./link/@href", "url",
		`./link/@href is "nope" and must satisfy url`},
	{xml, newArticle(`path="/a" version="1"`, `<mail>nobody</mail>`), 422, "./mail", "email",
		`./mail is "nobody" and must satisfy email`},
}

func TestSet_Accept_Refuses(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for group, cases := range map[string][]refusal{"NotXML": notXML, "NotReadable": notReadable,
		"NotByContract": notByContract} {
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s%02d", group, i), func(t *testing.T) {
				t.Parallel()
				m, err := s.Accept(t.Context(), c.kind, []byte(c.body))
				if err == nil {
					t.Fatalf("Accept(%.80q) = %.200v, want an error", c.body, m)
				}

				p := problemOf(t, err)
				got := refusal{c.kind, c.body, statuses[weir.KindOf(err)], p.Path,
					p.Rule, p.Message}
				if got != c {
					t.Errorf("%.80q:\n got %d %s %s %q\nwant %d %s %s %q", c.body, got.status,
						got.path, got.rule, got.message, c.status, c.path, c.rule, c.message)
				}

				hasPlace := p.Rule == "xml" || weir.KindOf(err) == weir.Invalid && p.Path != ""
				if hasPlace != (p.Line > 0) && p.Rule != "encoding" {
					t.Errorf("got line %d, column %d; want a place: %t", p.Line, p.Column, hasPlace)
				}
			})
		}
	}
}

// A column counts the characters of the decoded text, not the bytes of the body.
func TestSet_Accept_NamesThePlace(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for name, c := range map[string]struct {
		body         string
		line, column int
	}{
		"WrongEnd":          {"<article>\n  <ä></b>", 2, 6},
		"UTF16":             {utf16Bytes("<ping>\n𝄞ä<1/>", true), 2, 5},
		"AfterDeclaration":  {"<?xml version='1.0'\n encoding='utf-8'?><ping><p:a/></ping>", 2, 26},
		"WindowsLineEnds":   {"<ping>\r\n<b>\r\n</c>", 3, 1},
		"InvalidBytes":      {"<ping>\nä\xff</ping>", 2, 2},
		"ForbiddenInside":   {"<ping>\nää\x02</ping>", 2, 3},
		"UnpairedSurrogate": {utf16Bytes("<ping>\nä", false) + "\x00\xd8<\x00", 2, 2},
		"Doctype":           {"\n <!DOCTYPE ping [<!ENTITY a 'b'>]><ping/>", 2, 2},
		"NotClosed":         {"<ping>\n<a/>", 2, 5},
		"BadDeclaration":    {"<?xml?><ping/>", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := s.Accept(t.Context(), "", []byte(c.body))
			if p := problemOf(t, err); p.Line != c.line || p.Column != c.column {
				t.Errorf("got line %d, column %d; want line %d, column %d: %v", p.Line, p.Column,
					c.line, c.column, err)
			}
		})
	}
}

func TestSet_Accept_AllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	_, err := s.Accept(t.Context(), "",
		[]byte(`<article><tag>?</tag><tag>!</tag><mail>x</mail></article>`))
	var got []string
	for _, p := range err.(*weir.Error).Problems {
		got = append(got, p.Path+" "+p.Rule)
	}

	want := "./@path required, ./@version required, ./title required, ./tag alphanum, ./tag alphanum, ./mail email"
	if strings.Join(got, ", ") != want {
		t.Errorf("got the problems %s\nwant %s", strings.Join(got, ", "), want)
	}
}

func TestSet_Accept_NamesSomeOfVeryManyProblems(t *testing.T) {
	t.Parallel()
	s, err := contract.New(definitions, contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	_, err = s.Accept(t.Context(), "",
		[]byte(newArticle(`path="/a" version="1"`, strings.Repeat("<tag>?</tag>", 250))))
	e := err.(*weir.Error)
	if last := e.Problems[len(e.Problems)-1]; len(e.Problems) != 101 ||
		last.Message != "and 150 more" ||
		!strings.Contains(e.Message, "250 rules") {
		t.Errorf(`%d problems, %q, %+v, want 101 Problems, Message "and 150 more" and "250 rules"`,
			len(e.Problems), e.Message, last)
	}
}
