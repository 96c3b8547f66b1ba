package contract_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"weir/internal/contract"
)

var definitions = []contract.Definition{
	{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"}, Version: "./@version",
		Fields: []contract.Field{
			{Path: "./title", Rule: "required,max=20"}, {Path: "./tag", Rule: "alphanum"},
			{Path: "./link/@href", Rule: "url"}, {Path: "./mail", Rule: "omitempty,email"}}},
	{Name: "feed", Root: "{urn:feed}entry", Key: contract.KeyPaths{"./id"}, OnFailure: "skip"},
	{Name: "anyEntry", Root: "entry", Key: contract.KeyPaths{"./id"}},
	{Name: "ping", Root: "ping"},
	{Name: "queue", Root: "queue", OnFailure: "block"},
}

func newSet(t testing.TB) *contract.Set {
	t.Helper()
	s, err := contract.New(definitions,
		contract.Limits{MaxBody: 64 << 10, Depth: 10, Elements: 100})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const good = `<article path="/a" version="3"><title>Hi</title></article>`

// euro has characters of two, three and four bytes in UTF-8.
const euro = `<article path="/ä" version="3"><title>€ 𝄞</title></article>`

// utf16Bytes returns s in UTF-16 with a byte order mark, in big-endian byte order if big is true.
func utf16Bytes(s string, big bool) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune("\uFEFF" + s)) {
		if big {
			b.Write([]byte{byte(u >> 8), byte(u)})
		} else {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
	}

	return b.String()
}

func TestSet_Accept(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for name, c := range map[string]struct{ kind, body, contract, key, version string }{
		"UTF8": {"application/xml", euro, "article", "/ä", "3"},
		"UTF8ByDeclaration": {"application/xml",
			"<?xml version='1.0' encoding='utf-8' standalone='yes'?>\n" + euro,
			"article", "/ä", "3"},
		"UTF8ByParameter": {`text/xml; charset="UTF-8"`, euro, "article", "/ä", "3"},
		"ByteOrderMark":   {"text/xml", "\xEF\xBB\xBF" + euro, "article", "/ä", "3"},
		"UTF16LittleEndian": {"application/xml",
			utf16Bytes(`<?xml version="1.0" encoding="UTF-16"?>`+euro, false),
			"article", "/ä", "3"},
		"UTF16BigEndian": {"application/xml", utf16Bytes(euro, true), "article", "/ä", "3"},
		"UTF16ByParameter": {"application/xml; charset=utf-16", utf16Bytes(euro, true), "article",
			"/ä", "3"},
		"UTF16ByAll": {"application/xml; charset=utf-16",
			utf16Bytes(`<?xml version="1.0" encoding="utf-16le"?>`+euro, false), "article",
			"/ä", "3"},
		"UTF16LEByName": {"text/xml; charset=utf-16le",
			utf16Bytes(`<?xml version="1.0" encoding="UTF-16"?>`+euro, false)[2:], "article",
			"/ä", "3"},
		"UTF16BEByName": {"text/xml; charset=UTF-16BE", utf16Bytes(euro, true)[2:],
			"article", "/ä", "3"},
		"ReplacementCharacter": {"application/xml", utf16Bytes(`<ping>`+"\uFFFD"+`</ping>`, true),
			"ping", "", ""},
		"Latin1ByDeclaration": {"application/xml",
			"<?xml version='1.0' encoding='ISO-8859-1'?><article path=\"/\xe4\" version=\"3\"><title>Hi</title></article>", "article", "/ä", "3"},
		"Latin1ByParameter": {"application/xml; charset=ISO-8859-1",
			"<article path=\"/\xe4\" version=\"3\"><title>Hi</title></article>", "article",
			"/ä", "3"},
		"Windows1252": {"text/xml; charset=windows-1252",
			"<article path=\"/\x80\" version=\"3\"><title>Hi</title></article>", "article",
			"/€", "3"},
		"ASCII":         {"text/xml; charset=us-ascii", good, "article", "/a", "3"},
		"NoContentType": {"", good, "article", "/a", "3"},
		"PlusXML":       {"application/atom+xml; charset=UTF-8", good, "article", "/a", "3"},
		"Namespace": {"application/xml",
			`<f:entry xmlns:f="urn:feed"><f:id> 7 </f:id></f:entry>`, "feed", "7", ""},
		"DefaultNamespace": {"application/xml", `<entry xmlns="urn:feed"><id>7</id></entry>`,
			"feed", "7", ""},
		"AnyNamespace": {"application/xml", `<f:entry xmlns:f="urn:other"><f:id>7</f:id></f:entry>`,
			"anyEntry", "7", ""},
		"SameKeyTwice": {"application/xml", `<entry><id>7</id><id> 7 </id></entry>`,
			"anyEntry", "7", ""},
		"KeyInPieces": {"application/xml",
			`<entry><id>a<!-- b -->c<![CDATA[<d>]]>&amp;</id></entry>`, "anyEntry", "ac<d>&", ""},
		"WrappedAttribute": {"application/xml",
			"<article path='/a\r\n\tb\nc' version='1'\n><title>t</title></article>", "article",
			"/a  b c", "1"},
		"WrappedNamespace": {"application/xml", "<entry xmlns='\nurn:feed'><id>7</id></entry>",
			"anyEntry", "7", ""},
		"ForeignAttribute": {"application/xml",
			`<article xmlns:x="u" x:path="/evil" path="/a" version="1"><title>t</title></article>`,
			"article", "/a",
			"1"},
		"NoKey": {"application/xml", "<!-- hello --><?go on?><ping/>\n<?end?>",
			"ping", "", ""},
		"NoKeyAndBlock": {"application/xml", "<queue/>", "queue", "", ""},
		"Prefixes": {"application/xml",
			`<ping xmlns:a="u" xml:lang="en"><a:b xmlns:a="v" a:c="1" c="2"><d a:e="&#x1F600;"/></a:b><a:f/></ping>`,
			"ping", "", ""},
		"SameNameWithout": {"application/xml", `<ping xmlns="u" xmlns:p="u" p:a="1" a="2"/>`,
			"ping", "", ""},
		"AsDeepAsAllowed": {"application/xml",
			strings.Repeat("<ping>", 10) + strings.Repeat("</ping>", 10), "ping", "", ""},
		"AsManyAsAllowed": {"application/xml", "<ping>" + strings.Repeat("<a/>", 99) + "</ping>",
			"ping", "", ""},
		"AsLargeAsAllowed": {"application/xml",
			"<ping>" + strings.Repeat("x", 64<<10-13) + "</ping>", "ping", "", ""},
		"KeyAsLongAsAllowed": {"application/xml", "<entry><id>" + long[:1024] + "</id></entry>",
			"anyEntry", long[:1024], ""},
		"SecondTitleSuffices": {"application/xml",
			`<article path="/a" version="1"><title/><title>x</title><mail/></article>`, "article",
			"/a", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := s.Accept(t.Context(), c.kind, []byte(c.body))
			if err != nil {
				t.Fatalf("Accept(%q) = %v, want no error", c.body, err)
			}

			if m.Contract != c.contract || m.Key != c.key || m.Version != c.version ||
				m.Skip != (c.contract == "feed" || c.contract == "ping") {
				t.Errorf("got %+v, want contract %q, key %q, version %q", m, c.contract,
					c.key, c.version)
			}

			want := c.kind
			if want == "" {
				want = "application/xml"
			}

			if string(m.Body) != c.body || m.Size != len(c.body) || m.ContentType != want {
				t.Errorf("got the body %q (%d bytes) as %q, want Body %v, Size %v and ContentType %v", m.Body, m.Size,
					m.ContentType, c.body, len(c.body), want)
			}
		})
	}
}

// If Accept accepts the body, want is the key. Otherwise want is the rule of the problem.
func TestSet_Accept_KeyByPath(t *testing.T) {
	t.Parallel()
	const body = `<list xmlns:n="u" id="9"><item kind="x/@y"><k>1</k><t>a</t></item><item><k>2</k><t>b</t><deep><k>3</k></deep></item><n:k n:id="4" id="5">6</n:k></list>`
	for path, want := range map[string]string{
		"./item[1]/k": "1", "item[-1]/k": "2", "./item[@kind]/k": "1",
		"./item[@kind='x/@y']/k": "1",
		"./item[t='b']/k":        "2", `./item[t="b"][2]/k`: "required",
		"./item[k][t='b']/k": "2", ".//deep/k": "3", "//deep/k": "3", "/list/item[1]/k": "1",
		"./n:k":     "6",
		"./k/@n:id": "4", "./k/@id": "5", "./@id": "9", "@id": "9", "/@id": "9",
		"/list/@id": "9", ".//deep/../k": "2", "./*/deep/../../@id": "9", ".//item//deep//k": "3",
		"./item/k":     "one",
		"//item/@kind": "x/@y", ".//k": "one", "./absent": "required",
		"./item[text()='z']/k":     "required",
		"./k[namespace-uri()='u']": "6", "./{u}k": "6", "./{u}k/@{u}id": "4", "./k/@{}id": "5",
		"/{}list/{u}k":  "6",
		"./{}item[1]/k": "1", ".//{}deep/{}k": "3", "./{v}k": "required",
		"./k/@{http://v/w}id": "required",
	} {
		t.Run(strings.ReplaceAll(path, "/", "|"), func(t *testing.T) {
			t.Parallel()
			s, err := contract.New(
				[]contract.Definition{{Name: "l", Root: "list", Key: contract.KeyPaths{path}}},
				contract.Limits{MaxBody: 1 << 10})
			if err != nil {
				t.Fatal(err)
			}

			m, err := s.Accept(t.Context(), "", []byte(body))
			got := m.Key
			if err != nil {
				got = problemOf(t, err).Rule
			}

			if got != want {
				t.Errorf("got the key %q, want %q (error %v)", got, want, err)
			}
		})
	}
}
