package contract_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// badInputs are documents behind two lines of prolog, and the place and the cause in the reason.
// The place is that of the mistake, or the end of the document if something is missing.
var badInputs = []struct{ body, place, cause string }{
	{"<!DOCTYPE r [ ]><r/>", "line 3, column 1", "internal subset"},
	{"<!DOCTYPE r [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;&a;'>]>\n<r>&b;</r>", "line 3, column 1",
		"internal subset"},
	{"<!DOCTYPE r SYSTEM 's' [<!ATTLIST r id CDATA '1'>]><r/>", "line 3, column 1",
		"internal subset"},
	{"<!DOCTYPE r [<!ENTITY % p SYSTEM 'file:///etc/passwd'>%p;]><r/>", "line 3, column 1",
		"internal subset"},
	{"<!DOCTYPE r [", "line 3, column 1", "internal subset"},
	{"<!DOCTYPE r\n>\n<!DOCTYPE r><r/>", "line 5, column 1",
		"more than one document type declaration"},
	{"<r>\n<!DOCTYPE r></r>", "line 4, column 1", "before the root element"},
	{"<r/>\n<!DOCTYPE r>", "line 4, column 1", "before the root element"},
	{"<!DOCTYPE r SYSTEM s><r/>", "line 3, column 1", "declaration is not well-formed"},
	{"<!DOCTYPE r PUBLIC 'p'><r/>", "line 3, column 1", "declaration is not well-formed"},
	{"<!DOCTYPE r SYSTEM 's' NDATA n><r/>", "line 3, column 1", "declaration is not well-formed"},
	{"<!ELEMENT r ANY><r/>", "line 3, column 1", "a declaration other than <!DOCTYPE"},
	{"<!ENTITY a 'b'><r/>", "line 3, column 1", "a declaration other than <!DOCTYPE"},
	{"<!DOCTYPE r>\n<r>&lang;</r>", "line 4, column 10", "the entity &lang; needs the DTD"},
	{"<r>\n a&nbsp;b</r>", "line 4, column 9", "there is no entity &nbsp;"},
	{"<r a='&eacute;'/>", "line 3, column 15", "there is no entity &eacute;"},
	{"<r>Fish & chips</r>", "line 3", "an & begins no entity"},
	{"<r a='a&b'/>", "line 3", "an & begins no entity"},
	{"<r>&#xD834;&#xDD1E;</r>", "line 3, column 4", "&#xD834; names no character"},
	{"<r a='&#56606;'/>", "line 3, column 1", "&#56606; names no character"},
	{"<r>&#0;</r>", "line 3", "illegal character code"},
	{"<r>&#x110000;</r>", "line 3", "&#x110000;"},
	{"<r>&#" + strings.Repeat("9", 100_000) + ";</r>", "line 3", "&#9999"},
	{"<r>\n\x00</r>", "line 4, column 1", "U+0000 is not allowed"},
	{"<r>\x0b</r>", "line 3, column 4", "U+000B is not allowed"},
	{"<r>\uFFFF</r>", "line 3, column 4", "U+FFFF is not allowed"},
	{"<r>\xc3(</r>", "line 3, column 4", "not valid UTF-8"},
	{"<r>\xed\xa0\x80</r>", "line 3, column 4", "not valid UTF-8"},
	{"<r>\xf8\x88\x80\x80\x80</r>", "line 3, column 4", "not valid UTF-8"},
	{"<r>\xc0\xafetc</r>", "line 3, column 4", "not valid UTF-8"},
	{"<r>\n<a></b></r>", "line 4, column 4", "element <a> is closed by </b>"},
	{"<r><a></r>", "line 3, column 7", "element <a> is closed by </r>"},
	{"<r>\n<a>", "line 4, column 4", "element <a> is not closed"},
	{"</r>", "line 3, column 1", "</r> closes nothing"},
	{"<r/>\n<r/>", "line 4, column 1", "more than one root element"},
	{"<r/>\ntext", "line 3", "text after the root element"},
	{"text\n<r/>", "line 2", `text before the root element: "text"`},
	{"<r/>\n<?xml version='1.0'?>", "line 4, column 1",
		"XML declaration must stand at the very beginning"},
	{"<?XML version='1.0'?><r/>", "line 3, column 1",
		"XML declaration must stand at the very beginning"},
	{"<r><?a:b c?></r>", "line 3, column 4", "has a colon"},
	{"<r><?a?b</r>", "line 3", "EOF"},
	{"<r><!-- a -- b --></r>", "line 3", `"--" not allowed in comments`},
	{"<r><!-- a</r>", "line 3", "EOF"},
	{"<r><![CDATA[ a</r>", "line 3", "EOF"},
	{"<r>]]></r>", "line 3", "unescaped ]]>"},
	{"<r><![cdata[a]]></r>", "line 3", "invalid <![ sequence"},
	{"<r a=1/>", "line 3", "unquoted or missing attribute value"},
	{"<r a/>", "line 3", "attribute name without ="},
	{"<r a='1' a='2'/>", "line 3, column 1", `the attribute "a" appears twice`},
	{"<r xmlns:a='u' xmlns:b='u' a:x='1' b:x='2'/>", "line 3, column 1", "appears twice"},
	{"<r a='1'b='2'/>", "line 3, column 1", "no space between two attributes"},
	{"<r a='<'/>", "line 3", "unescaped < inside quoted string"},
	{"<r a='\n>", "line 4", "EOF"},
	{"<r\n<a/></r>", "line 4", "expected"},
	{"<1/>", "line 3", "invalid XML name: 1"},
	{"<r>\n<p:a/></r>", "line 4, column 1", `prefix "p" is not declared`},
	{"<r p:a='1'/>", "line 3, column 1", `prefix "p" is not declared`},
	{"<r xmlns:p=''/>", "line 3, column 1", `prefix "p" is bound to nothing`},
	{"<r xmlns:xml='urn:x'/>", "line 3, column 1", `prefix "xml" must not be bound`},
	{"<r xmlns='http://www.w3.org/2000/xmlns/'/>", "line 3, column 1", "must not be bound"},
	{"<a:b:c xmlns:a='u'/>", "line 3", "expected element name after <"},
	{strings.Repeat("<r>", 100_000), "line 3, column 769", "nested more than 256 deep"},
	{"<r>" + strings.Repeat("<a/>", 100_000) + "</r>", "line 3", "too many elements"},
	{"<r" + strings.Repeat(" a=''", 100_001) + "/>", "line 3, column 1",
		"more than 100000 attributes"},
	{"<r>" + strings.Repeat("<![CDATA[<r>]]>", 20_000), "line 3", "element <r> is not closed"},
}

// Each reason names the line and the cause. The same document in a batch has a reason with a line,
// too.
func TestBadInputs(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "r", Root: "r"}},
		contract.Limits{MaxBody: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}

	path, err := contract.CompileSplitPath("/none")
	if err != nil {
		t.Fatal(err)
	}

	const prolog = "<?xml version='1.0'?>\n<!-- two lines -->\n"
	for _, c := range badInputs {
		_, err := set.Accept(t.Context(), "", []byte(prolog+c.body))
		var refused *weir.Error
		if !errors.As(err, &refused) || refused.Kind != weir.Malformed ||
			!strings.Contains(refused.Message, c.cause) ||
			!strings.HasPrefix(refused.Message, c.place) || len(refused.Message) > 300 {
			t.Errorf("%.80q: got %.300v; want %s and %q", c.body, err, c.place, c.cause)
		}

		split, err := set.Split(strings.NewReader(prolog+c.body), "", path)
		for err == nil {
			_, err = split.Next()
		}

		if errors.Is(err, io.EOF) && !strings.Contains(c.cause, "too many") ||
			!errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "line ") &&
				!strings.Contains(err.Error(), "attributes") {
			t.Errorf("%.80q in a batch: got %.300v, want a refusal with its line", c.body, err)
		}
	}
}

// Numbers of a million digits as version, key, value of a rule and shown value cost no more than
// their length.
func TestBadInputs_LongNumbers(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "r", Root: "r", Key: contract.KeyPaths{"./k"}, Version: "./v",
		DeliverAt: "./d", Supersede: true, TimeZone: "UTC",
		Show:   []contract.ShownField{{Name: "N", Path: "./n"}},
		Fields: []contract.Field{{Path: "./n", Rule: "gt=0", Type: "number"}}}},
		contract.Limits{MaxBody: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}

	digits := bytes.Repeat([]byte("7"), 1_000_000)
	for _, element := range []string{"k", "v", "d", "n"} {
		body := fmt.Sprintf("<r>\n<%s>%s</%s>%s</r>", element, digits, element,
			strings.Replace("<k>1</k><v>1</v><n>1</n>", "<"+element+">1</"+element+">", "", 1))
		_, err := set.Accept(t.Context(), "", []byte(body))
		p := problemOf(t, err)
		if weir.KindOf(err) != weir.Invalid || p.Line != 2 || len(p.Message) > 500 {
			t.Errorf("%s: got %.300v, line %d, a message of %d bytes; want a short refusal in line 2", element, err, p.Line,
				len(p.Message))
		}
	}
}

// FuzzSplitAndAccept holds the splitter against Accept: a part that the splitter returns of a whole
// document is that document, and a document that Accept takes is one that the splitter reads.
func FuzzSplitAndAccept(f *testing.F) {
	for _, c := range badInputs {
		if len(c.body) < 1<<10 {
			f.Add("", []byte(c.body))
		}
	}

	for _, d := range declarations {
		f.Add("text/xml", []byte(d+"<r><r/></r>"))
	}

	f.Add("text/xml; charset=shift_jis", []byte("<r>\x83\x5c</r>"))
	f.Add("text/xml; charset=iso-2022-jp", []byte("<r>\x1b$B9A\x1b(B</r>"))
	f.Add("text/xml; charset=gb18030", []byte("<r>\x81\x30\x81\x30</r>"))
	set, err := contract.New([]contract.Definition{{Name: "r", Root: "r"}},
		contract.Limits{MaxBody: 1 << 16})
	if err != nil {
		f.Fatal(err)
	}

	path, err := contract.CompileSplitPath("/r")
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		_, refused := set.Accept(t.Context(), contentType, body)
		split, err := set.Split(bytes.NewReader(body), contentType, path)
		var part contract.Part
		if err == nil {
			part, err = split.Next()
		}

		if refused == nil && (err != nil || part.Err != nil) {
			t.Fatalf("accepted, and not split: %v, %v", err, part.Err)
		}

		if refused == nil {
			if _, err := set.Accept(t.Context(), split.PartType(), part.Body); err != nil {
				t.Fatalf("accepted, and its part is refused: %v", err)
			}
		}
	})
}
