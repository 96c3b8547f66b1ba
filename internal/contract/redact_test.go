package contract_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"weir/internal/contract"
	"weir/internal/weir"
)

// newPersonSet returns a set with two contracts: "person" redacts the given paths, and "plain"
// redacts nothing.
func newPersonSet(t *testing.T, redact ...string) *contract.Set {
	t.Helper()
	s, err := contract.New([]contract.Definition{
		{Name: "person", Root: "person", Key: contract.KeyPaths{"./@id"}, Redact: redact,
			Fields: []contract.Field{{Path: "./pan", Rule: "omitempty,max=4"},
				{Path: "./name", Rule: "omitempty,max=4"},
				{Path: "./@mail", Rule: "omitempty,email"}},
			Show: []contract.ShownField{{Name: "pan", Path: "./pan"},
				{Name: "name", Path: "./name"},
				{Name: "city", Path: "./home/city"}, {Name: "mail", Path: "./@mail"}}},
		{Name: "plain", Root: "plain"},
	}, contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestRedact_ReplacesOnlyTheValues(t *testing.T) {
	t.Parallel()
	const marked = contract.RedactedMark
	for _, tt := range []struct{ name, path, body, want string }{
		{"text", "./pan", `<person id="1"><pan> 4711 </pan><x/></person>`,
			`<person id="1"><pan>` + marked + `</pan><x/></person>`},
		{"twice", "./pan", `<person><pan>1</pan>ä<pan>2</pan></person>`,
			`<person><pan>` + marked + `</pan>ä<pan>` + marked + `</pan></person>`},
		{"CDATA and comment", "./pan", `<person><pan>4<!-- 7 --><![CDATA[<11]]></pan></person>`,
			`<person><pan>` + marked + `</pan></person>`},
		{"all in the element", "./home",
			`<person><home no="7"><city z="1">Bern</city></home></person>`,
			`<person><home no="7">` + marked + `</home></person>`},
		{"nested elements", "//city", `<person><city>a<city>b</city></city></person>`,
			`<person><city>` + marked + `</city></person>`},
		{"attribute", "./@mail", "<person id='1'\n mail = 'a=b@c'  x=\"mail='z'\">t</person>",
			"<person id='1'\n mail = '" + marked + "'  x=\"mail='z'\">t</person>"},
		{"attribute of a namespace", "./card/@{urn:c}no",
			`<person xmlns:p="urn:c"><card no="1" p:no="2>3"/></person>`,
			`<person xmlns:p="urn:c"><card no="1" p:no="` + marked + `"/></person>`},
		{"empty", "./pan", `<person><pan/><pan></pan><pan> </pan></person>`,
			`<person><pan/><pan></pan><pan> </pan></person>`},
		{"absent", "./pan", `<person>4711</person>`, `<person>4711</person>`},
		{"declaration", "./pan", `<?xml version="1.0"?><person><pan>é</pan></person>`,
			`<?xml version="1.0"?><person><pan>` + marked + `</pan></person>`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newPersonSet(t, tt.path)
			for name, encode := range encodings {
				contentType, body, want := encode(tt.body, tt.want)
				got, err := s.Redact(t.Context(), "person", contentType, body)
				if err != nil || string(got.Body) != string(want) {
					t.Errorf("%s: got the body %q and the error %v, want %q", name,
						got.Body, err, want)
				}

				if isChanged := tt.body != tt.want; isChanged != (len(got.Values) > 0) {
					t.Errorf("%s: got the values %q, want at least one value: %v", name,
						got.Values, isChanged)
				}
			}
		})
	}
}

// encodings maps the name of an encoding to a function that encodes two bodies: the body for
// Redact, and the body that Redact must return.
var encodings = map[string]func(body, want string) (contentType string, encoded,
	encodedWant []byte){
	"UTF-8": func(body, want string) (string, []byte, []byte) {
		return "application/xml", []byte("\uFEFF" + body), []byte("\uFEFF" + want)
	},
	"ISO-8859-1": func(body, want string) (string, []byte, []byte) {
		return "text/xml; charset=iso-8859-1", encodeLatin1(body), encodeLatin1(want)
	},
	"UTF-16BE, by name": func(body, want string) (string, []byte, []byte) {
		return "text/xml; charset=utf-16be", encodeUTF16(body), encodeUTF16(want)
	},
	"UTF-16BE": func(body, want string) (string, []byte, []byte) {
		return "text/xml; charset=utf-16", encodeUTF16("\uFEFF" + body),
			encodeUTF16("\uFEFF" + want)
	},
}

func encodeLatin1(text string) (out []byte) {
	for _, r := range text {
		out = append(out, byte(r))
	}
	return out
}

func encodeUTF16(text string) (out []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		out = append(out, byte(unit>>8), byte(unit))
	}
	return out
}

func TestRedact_Values(t *testing.T) {
	t.Parallel()
	s := newPersonSet(t, "./home", "./@mail")
	body := `<person mail="a&amp;b"><home><zip no="7` + "\n" +
		`8">3<![CDATA[0]]>11</zip> <city>Bern</city> x&#52; </home></person>`
	got, err := s.Redact(t.Context(), "", "", []byte(body))
	if err == nil {
		t.Errorf("without a Content-Type: got the values %q, want an error", got.Values)
	}

	got, err = s.Redact(t.Context(), "", "application/xml", []byte(body))
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"a&b", "7 8", "3011", "Bern", "x4", "3011 Bern x4"} {
		if !slices.Contains(got.Values, want) {
			t.Errorf("got the values %q, want %q among them", got.Values, want)
		}
	}

	for _, want := range []string{"a&amp;b",
		`<zip no="7` + "\n" + `8">3<![CDATA[0]]>11</zip> <city>Bern</city> x&#52;`} {
		if !slices.Contains(got.Written, want) {
			t.Errorf("got the contents %q, want %q among them", got.Written, want)
		}
	}
}

func TestRedact_HidesBodiesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newPersonSet(t, "./pan")
	for _, tt := range []struct {
		name, contract, contentType, body string
	}{
		{"not well-formed", "person", "text/xml", `<person><pan>4711</person>`},
		{"another encoding", "person", "text/xml; charset=utf-7",
			`<person><pan>4711</pan></person>`},
		{"contract that is gone", "old", "text/xml", `<person><pan>4711</pan></person>`},
		{"unknown root", "", "text/xml", `<other><pan>4711</pan></other>`},
	} {
		got, err := s.Redact(t.Context(), tt.contract, tt.contentType, []byte(tt.body))
		if err == nil || weir.KindOf(err) != weir.Conflict || got.Body != nil {
			t.Errorf("%s: got %q, %v, want an error of kind Conflict and no body", tt.name,
				got.Body, err)
		}
	}

	without := newPersonSet(t)
	got, err := without.Redact(t.Context(), "old", "text/xml", []byte(`<old>`))
	if err != nil || string(got.Body) != "<old>" {
		t.Errorf("without redaction: got %q, %v, want the body", got.Body, err)
	}
}

func TestAccept_RedactedValues(t *testing.T) {
	t.Parallel()
	s := newPersonSet(t, "./pan", "./home", "./@mail")
	m, err := s.Accept(t.Context(), "", []byte(
		`<person id="1" mail="a@b.example"><name>Ann</name><pan>4711</pan><home><city>Bern</city></home></person>`))
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{"pan": contract.RedactedMark,
		"city": contract.RedactedMark, "mail": contract.RedactedMark, "name": "Ann"} {
		if m.Shown[name] != want {
			t.Errorf("shown %s: got %q, want %q", name, m.Shown[name], want)
		}
	}

	for name, tt := range map[string]struct{ body, want string }{
		"values": {`<person id="1" mail="4711"><pan>47114711</pan><name>Annabel</name></person>`,
			"max=4"},
		"mark": {`<person id="1"><pan> [redacted] </pan></person>`,
			"send the value itself"},
		"mark, attribute": {`<person id="1" mail="[redacted]"><pan>4711</pan></person>`,
			"send the value itself"},
		"stray bracket": {`<person id="1"><pan>12<4711</pan></person>`, "XML name: …"},
		"stray entity":  {`<person id="1"><pan>12&4711;</pan></person>`, "there is no entity …"},
		"text before":   {`4711<person id="1"/>`, "text before the root element: …"},
	} {
		checked, err := s.Check(t.Context(), "", []byte(tt.body))
		if err != nil {
			t.Fatalf("%s: Check = %v, want no error", name, err)
		}

		text := describeProblems(checked.Problems)
		if !strings.Contains(text, tt.want) || strings.Contains(text, "4711") {
			t.Errorf("%s: got %s, want %q and not 4711", name, text, tt.want)
		}

		if _, err := s.Accept(t.Context(), "", []byte(tt.body)); err == nil ||
			strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v, want a refusal without 4711", name, err)
		}
	}
}

func describeProblems(problems []weir.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.Rule + " " + p.Message + "\n")
	}
	return b.String()
}

func TestRedact_NeverKeyVersionOrDueTime(t *testing.T) {
	t.Parallel()
	for _, redact := range []string{"./id", ".", "./when", "./when/v", "./when/@due", "/c/other"} {
		_, err := contract.New(
			[]contract.Definition{{Name: "c", Root: "c", Key: contract.KeyPaths{"./id"},
				Version:   "./when/v",
				DeliverAt: "./when/@due", Redact: []string{redact}}}, contract.Limits{MaxBody: 100})
		if covers := redact != "/c/other"; (err != nil) != covers {
			t.Errorf("redact %s: got the error %v, want an error: %v", redact, err, covers)
		}
	}

	for _, redact := range []string{"", "./a[", "./@a/b"} {
		_, err := contract.New(
			[]contract.Definition{{Name: "c", Root: "c", Redact: []string{redact}}},
			contract.Limits{MaxBody: 100})
		if err == nil || !strings.Contains(err.Error(), "redact[0]") {
			t.Errorf("redact %q: got %v, want a problem of redact[0]", redact, err)
		}
	}

	for redact, isRefused := range map[string]bool{"//id": true, "./*": true, "/c": true,
		"./id/@x": false, "./other": false} {
		s, err := contract.New(
			[]contract.Definition{{Name: "c", Root: "c", Key: contract.KeyPaths{"./id"},
				Redact: []string{redact}}},
			contract.Limits{MaxBody: 100})
		if err != nil {
			t.Errorf("New with redact %s = %v, want no error", redact, err)
			continue
		}

		checked, err := s.Check(t.Context(), "", []byte(`<c><id x="1">4711</id></c>`))
		if err != nil || len(checked.Problems) > 0 != isRefused ||
			isRefused && checked.Message.Key != "" {
			t.Errorf("redact %s: got %+v, %v, want a problem: %v", redact, checked, err, isRefused)
		}
	}
}

func TestSplit_RepeatsNoWordsIfAContractRedacts(t *testing.T) {
	t.Parallel()
	s := newPersonSet(t, "./pan")
	paths, err := contract.CompileSplitPath("/all/person")
	if err != nil {
		t.Fatal(err)
	}

	for _, body := range []string{`<all>4711`, `<all><person><pan>1<4711</pan></person></all>`,
		`<all/>4711`, `<all><person>&4711;</person></all>`} {
		parts, err := s.Split(strings.NewReader(body), "", paths)
		for err == nil {
			_, err = parts.Next()
		}

		if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v, want an error without 4711", body, err)
		}
	}
}

// Redact must limit the content that it reads from nested redacted elements. Without the limit,
// Redact would store the innermost text once for each level.
func TestRedact_NestedElements(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "nested", Root: "nested", Redact: []string{"//a"}}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	nest := func(depth int, content string) []byte {
		return []byte("<nested>" + strings.Repeat("<a>", depth) + content +
			strings.Repeat("</a>", depth) + "</nested>")
	}

	large := nest(250, strings.Repeat("x", 900_000))
	got, err := set.Redact(t.Context(), "nested", "application/xml", large)
	if err != nil || !got.HasMore ||
		string(got.Body) != "<nested><a>"+contract.RedactedMark+"</a></nested>" {
		t.Errorf("got %.80q, more values: %v, %v; want the mark and more values", got.Body,
			got.HasMore, err)
	}

	size := 0
	for _, value := range got.Values {
		size += len(value)
	}

	if size > 2<<20 {
		t.Errorf("got %d bytes of values, want 2 MiB at most", size)
	}

	got, err = set.Redact(t.Context(), "nested", "application/xml",
		nest(3, "<b>one</b> <b>two</b>"))
	if err != nil || got.HasMore || !slices.Contains(got.Values, "one two") {
		t.Errorf("got %q, more values: %v, %v; want all values of a small body", got.Values,
			got.HasMore, err)
	}
}
