package contract_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"weir/internal/contract"
	"weir/internal/weir"
)

var definitions = []contract.Definition{
	{Name: "article", Root: "article", Key: "./@path", Version: "./@version", Fields: []contract.Field{
		{Path: "./title", Rule: "required,max=20"}, {Path: "./tag", Rule: "alphanum"}, {Path: "./link/@href", Rule: "url"}, {Path: "./mail", Rule: "email"}}},
	{Name: "feed", Root: "{urn:feed}entry", Key: "./id", OnFailure: "skip"},
	{Name: "ping", Root: "ping"},
}

func newSet(t testing.TB) *contract.Set {
	t.Helper()
	s, err := contract.New(definitions, contract.Limits{MaxBody: 64 << 10, Depth: 10, Elements: 100})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const good = `<article path="/a" version="3"><title>Hi</title></article>`

func utf16Bytes(s string, big bool) string {
	var b strings.Builder
	units := utf16.Encode([]rune("\uFEFF" + s))
	for _, u := range units {
		if big {
			b.WriteByte(byte(u >> 8))
		}
		b.WriteByte(byte(u))
		if !big {
			b.WriteByte(byte(u >> 8))
		}
	}
	return b.String()
}

func TestSet_Accept(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for name, c := range map[string]struct{ kind, body, contract, key, version string }{
		"UTF8":              {"application/xml", good, "article", "/a", "3"},
		"NoContentType":     {"", good, "article", "/a", "3"},
		"PlusXML":           {"application/atom+xml; charset=UTF-8", good, "article", "/a", "3"},
		"ByteOrderMark":     {"text/xml", "\xEF\xBB\xBF" + good, "article", "/a", "3"},
		"UTF16LittleEndian": {"application/xml", utf16Bytes(`<?xml version="1.0" encoding="UTF-16"?><article path="/ä" version="3"><title>Hi</title></article>`, false), "article", "/ä", "3"},
		"UTF16BigEndian":    {"application/xml; charset=utf-16", utf16Bytes(good, true), "article", "/a", "3"},
		"Latin1ByDecl":      {"application/xml", "<?xml version='1.0' encoding='ISO-8859-1'?><article path=\"/\xe4\" version=\"3\"><title>Hi</title></article>", "article", "/ä", "3"},
		"Windows1252":       {"text/xml; charset=windows-1252", "<article path=\"/\x80\" version=\"3\"><title>Hi</title></article>", "article", "/€", "3"},
		"Namespace":         {"application/xml", `<f:entry xmlns:f="urn:feed"><f:id> 7 </f:id></f:entry>`, "feed", "7", ""},
		"NoKey":             {"application/xml", "<!-- hello --><ping/>\n", "ping", "", ""},
		"CDATA":             {"application/xml", `<article path="/a" version="1"><title><![CDATA[<b>]]></title></article>`, "article", "/a", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := s.Accept(t.Context(), c.kind, []byte(c.body))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if m.Contract != c.contract || m.Key != c.key || m.Version != c.version || string(m.Body) != c.body || m.Skip != (c.contract != "article") {
				t.Errorf("%+v", m)
			}
		})
	}
}

// Kinds become the statuses of httpio: 400, 413, 415 and 422.
func TestSet_Accept_Refuses(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	const xml = "application/xml"
	long := strings.Repeat("x", 1100)
	for i, c := range []struct {
		kind, body string
		want       weir.Kind
		rule, says string // of the first problem; or the message where there is no list
	}{
		{xml, "", weir.Malformed, "", "empty"},
		{xml, "   ", weir.Malformed, "xml", "there is no element"},
		{xml, "hello", weir.Malformed, "xml", "text outside"},
		{xml, "{}", weir.Malformed, "xml", "text outside"},
		{xml, "<a", weir.Malformed, "xml", "unexpected EOF"},
		{xml, "<a>", weir.Malformed, "xml", "not closed"},
		{xml, "<a></b>", weir.Malformed, "xml", "closed by </b>"},
		{xml, "</a>", weir.Malformed, "xml", "closes nothing"},
		{xml, "<a/><b/>", weir.Malformed, "xml", "more than one root"},
		{xml, "<a/>tail", weir.Malformed, "xml", "text outside"},
		{xml, "<a x=1/>", weir.Malformed, "xml", "unquoted"},
		{xml, `<a x="1" x="2"/>`, weir.Malformed, "xml", "stands twice"},
		{xml, `<a xmlns:p="u" xmlns:q="u" p:x="1" q:x="2"/>`, weir.Malformed, "xml", "stands twice"},
		{xml, "<p:a/>", weir.Malformed, "xml", "not declared"},
		{xml, `<a p:x="1"/>`, weir.Malformed, "xml", "not declared"},
		{xml, `<a xmlns:p=""/>`, weir.Malformed, "xml", "bound to nothing"},
		{xml, "<a>&nbsp;</a>", weir.Malformed, "xml", "entity"},
		{xml, "<a>&#0;</a>", weir.Malformed, "xml", "character"},
		{xml, "<a>\x01</a>", weir.Malformed, "xml", "character"},
		{xml, "<a>\xff</a>", weir.Malformed, "", "not valid UTF-8"},
		{xml, `<!DOCTYPE a><a/>`, weir.Malformed, "xml", "document type"},
		{xml, `<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, weir.Malformed, "xml", "document type"},
		{xml, `<a/><!ENTITY x "y">`, weir.Malformed, "xml", "entity declarations"},
		{xml, `<a/><?xml version="1.0"?>`, weir.Malformed, "xml", "at the very beginning"},
		{xml, ` <?xml version="1.0"?><a/>`, weir.Malformed, "xml", "at the very beginning"},
		{xml, `<?xml version="1.1"?><a/>`, weir.Malformed, "", "XML version"},
		{xml, `<?xml encoding="utf-8"?><a/>`, weir.Malformed, "", "declaration is not well-formed"},
		{xml, strings.Repeat("<a>", 11) + strings.Repeat("</a>", 11), weir.Malformed, "xml", "nested more than 10"},
		{xml, "<a>" + strings.Repeat("<b/>", 100) + "</a>", weir.Malformed, "xml", "too many elements"},
		{xml, "<a>" + strings.Repeat("x", 64<<10) + "</a>", weir.TooLarge, "", "may have 65536"},
		{"application/json", good, weir.Unsupported, "", "application/json"},
		{"text/plain", good, weir.Unsupported, "", "must be XML"},
		{"x/", good, weir.Unsupported, "", "cannot be read"},
		{"application/xml; charset=koi8-r", good, weir.Unsupported, "", "koi8-r"},
		{xml, `<?xml version="1.0" encoding="Shift_JIS"?><a/>`, weir.Unsupported, "", "shift_jis"},
		{"application/xml; charset=iso-8859-1", `<?xml version="1.0" encoding="UTF-8"?><a/>`, weir.Malformed, "", "says iso-8859-1"},
		{"application/xml; charset=iso-8859-1", "\xEF\xBB\xBF<a/>", weir.Malformed, "", "byte order mark says utf-8"},
		{xml, utf16Bytes(`<?xml version="1.0" encoding="UTF-8"?><a/>`, true), weir.Malformed, "", "says utf-16be"},
		{xml, `<?xml version="1.0" encoding="UTF-16"?><a/>`, weir.Malformed, "", "needs a byte order mark"},
		{"application/xml; charset=utf-16", good, weir.Malformed, "", "needs a byte order mark"},
		{xml, utf16Bytes(good, false) + "x", weir.Malformed, "", "not valid UTF-16LE"},
		{"text/xml; charset=windows-1252", "<a>\x81</a>", weir.Malformed, "", "not valid WINDOWS-1252"},
		{xml, "<other/>", weir.Invalid, "contract", "no contract accepts the root element other"},
		{xml, `<entry/>`, weir.Invalid, "contract", "entry"},
		{xml, `<article version="1"><title>x</title></article>`, weir.Invalid, "required", "ordering key is missing"},
		{xml, `<article path=" " version="1"><title>x</title></article>`, weir.Invalid, "required", "ordering key is missing"},
		{xml, `<article path="/a"><title>x</title></article>`, weir.Invalid, "required", "version is missing"},
		{xml, `<article path="` + long + `" version="1"><title>x</title></article>`, weir.Invalid, "max=1024", "may have 1024"},
		{xml, `<article path="a&#10;b" version="1"><title>x</title></article>`, weir.Invalid, "printable", "control characters"},
		{xml, `<e:entry xmlns:e="urn:feed"><e:id>1</e:id><e:id>2</e:id></e:entry>`, weir.Invalid, "one", "2 different values"},
		{xml, `<article path="/a" version="1"/>`, weir.Invalid, "required", "./title is required"},
		{xml, `<article path="/a" version="1"><title/></article>`, weir.Invalid, "required", "./title is required"},
		{xml, `<article path="/a" version="1"><title>` + long + `</title></article>`, weir.Invalid, "max=20", "must satisfy max=20"},
		{xml, `<article path="/a" version="1"><title>x</title><tag>ok</tag><tag>not ok</tag></article>`, weir.Invalid, "alphanum", `"not ok"`},
		{xml, `<article path="/a" version="1"><title>x</title><link href="nope"/></article>`, weir.Invalid, "url", "./link/@href"},
		{xml, `<article path="/a" version="1"><title>x</title><mail>nobody</mail></article>`, weir.Invalid, "email", "nobody"},
	} {
		t.Run(fmt.Sprintf("%02d", i), func(t *testing.T) {
			t.Parallel()
			_, err := s.Accept(t.Context(), c.kind, []byte(c.body))
			e, ok := err.(*weir.Error)
			if !ok {
				t.Fatalf("%.80q: error %v", c.body, err)
			}
			rule, says := "", e.Message
			if len(e.Problems) > 0 {
				rule, says = e.Problems[0].Rule, e.Problems[0].Message
			}
			if e.Kind != c.want || rule != c.rule || !strings.Contains(says, c.says) {
				t.Errorf("%.80q: kind %d rule %q %q, want kind %d rule %q %q", c.body, e.Kind, rule, says, c.want, c.rule, c.says)
			}
		})
	}
}

func TestSet_Accept_AllProblemsAtOnceWithTheirPlace(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	_, err := s.Accept(t.Context(), "", []byte(`<article><tag>?</tag><tag>!</tag><mail>x</mail></article>`))
	if e := err.(*weir.Error); len(e.Problems) != 6 {
		t.Errorf("%d problems: %v", len(e.Problems), e.Problems)
	}
	_, err = s.Accept(t.Context(), "", []byte("<article>\n  <ä></b>"))
	if p := err.(*weir.Error).Problems[0]; p.Line != 2 || p.Column != 6 {
		t.Errorf("%+v", p)
	}
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := contract.New([]contract.Definition{
		{Name: "a", Root: "a", Key: "./[", OnFailure: "explode", Success: "(", Fields: []contract.Field{{Path: "./x", Rule: "nosuchrule"}, {Rule: "required"}, {Path: "./y"}}},
		{Name: "a", Root: "a"}, {Root: "{u"},
	}, contract.Limits{MaxBody: 100})
	for _, want := range []string{"key:", "explode", "success:", "nosuchrule", "path is missing", "rule is missing", "name is taken", "root \"a\" is taken", "name is missing", "root must be"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if _, err := contract.New(nil, contract.Limits{}); err == nil {
		t.Error("no contracts were accepted")
	}
}

func FuzzAccept(f *testing.F) {
	s := newSet(f)
	for _, seed := range []string{good, utf16Bytes(good, true), "<a", "<!DOCTYPE a>", `<?xml version="1.0" encoding="latin1"?><ping>` + "\xe4</ping>", `<f:entry xmlns:f="urn:feed"><f:id>1</f:id></f:entry>`} {
		f.Add("application/xml", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		before := string(body)
		m, err := s.Accept(t.Context(), kind, body)
		if e, ok := err.(*weir.Error); err != nil && (!ok || e.Kind == weir.Internal) {
			t.Fatalf("error of no kind: %v", err)
		}
		if err == nil && (string(m.Body) != before || len(m.Key) > 1024 || (m.Contract == "article" && m.Key == "")) {
			t.Fatalf("accepted as %+v", m)
		}
	})
}
