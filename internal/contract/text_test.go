package contract_test

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// texts are contents of an element, and their string-values by XPath 1.0, section 5.2.
var texts = map[string]string{
	"Growth of <i>E. coli</i> in milk":                  "Growth of E. coli in milk",
	"<b>Harbour opens</b>":                              "Harbour opens",
	"a<i>b<u>c</u>d</i>e<i/>f":                          "abcdef",
	"a<!-- no --><i>b<?no no?></i><![CDATA[<c>]]>&amp;": "ab<c>&",
	"\n  two\n  <i>lines </i>\n":                        "two\n  lines",
	"<t>same <t>name</t></t> inside":                    "same name inside",
	"":                                                  "",
	"<i/>":                                              "",
}

// All that reads an element's text reads the text of the elements in it: expressions, rules, shown
// values, and answers in XML. Each path makes the scanner keep other parts of the tree.
func TestText_IsTheStringValue(t *testing.T) {
	t.Parallel()
	for content, want := range texts {
		body := "<r><t id='1'>" + content + "</t><o>other</o></r>"
		for _, path := range []string{"./t[1]", "./t[@id='1']", "./*[1]", "./t[1]/.", "./{}t[@id]",
			"/r/t[@id='1']"} {
			set, err := contract.New([]contract.Definition{{Name: "r", Root: "r",
				Show:   []contract.ShownField{{Name: "Text", Path: path}},
				Fields: []contract.Field{{Path: path, Rule: "eq=never"}}}},
				contract.Limits{MaxBody: 1 << 10})
			if err != nil {
				t.Fatal(err)
			}

			extractor, err := contract.NewExtractor([]contract.Selection{{Path: path}})
			if err != nil {
				t.Fatal(err)
			}

			values, err := set.Extract(t.Context(), extractor, xml, []byte(body))
			if err != nil || len(values[0]) != 1 || values[0][0] != want {
				t.Errorf("%s of %s: extracted %q, %v; want %q", path, content, values, err, want)
			}

			found, err := set.Check(t.Context(), xml, []byte(body))
			if shown := strings.Join(strings.Fields(want), " "); err != nil ||
				found.Message.Shown["Text"] != shown {
				t.Errorf("%s of %s: shown %q, %v; want %q", path, content, found.Message.Shown,
					err, shown)
			}

			if _, err = set.Accept(t.Context(), xml, []byte(body)); weir.KindOf(err) !=
				weir.Invalid {
				t.Errorf("%s of %s: got %v, want the rule to refuse the text", path, content, err)
			}

			tree, err := contract.ParseTree([]byte(body), "", contract.Limits{})
			if err != nil {
				t.Fatal(err)
			}

			p, err := contract.CompileTreePath(path)
			if got := slices.Collect(tree.Texts(p)); err != nil ||
				!slices.Equal(got, []string{want}) {
				t.Errorf("%s of %s: the tree has %q, %v; want %q", path, content, got, err, want)
			}
		}
	}
}

// Markup in a key, version or due time is refused by name: without it, two keys could become one.
func TestAccept_RefusesElementsInKeys(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "r", Root: "r", Key: contract.KeyPaths{"./k", "./l"},
		Version: "./v", DeliverAt: "./d"}}, contract.Limits{MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}

	plain := "<r><k>a</k><l>b</l><v>1</v><d>2030-01-31T08:00:00Z</d></r>"
	if _, err := set.Accept(t.Context(), "", []byte(plain)); err != nil {
		t.Fatal(err)
	}

	for change, want := range map[string]string{
		"<k>a<i>b</i></k>":        "the part ./k of the ordering key has the element <i> in it, and must be plain text",
		"<l>b<p/></l>":            "the part ./l of the ordering key has the element <p> in it, and must be plain text",
		"<v>1<v>2</v></v>":        "the version has the element <v> in it, and must be plain text",
		"<d>2030<!-- --><b/></d>": "the due time has the element <b> in it, and must be plain text",
	} {
		old := map[byte]string{'k': "<k>a</k>", 'l': "<l>b</l>", 'v': "<v>1</v>", 'd': "<d>2030-01-31T08:00:00Z</d>"}[change[1]]
		_, err := set.Accept(t.Context(), "", []byte(strings.Replace(plain, old, change, 1)))
		if p := problemOf(t, err); p.Rule != "text" || p.Message != want || p.Line != 1 {
			t.Errorf("%s: got %+v, want %q", change, p, want)
		}
	}
}

// An inner text belongs to each element around it. The texts that one path selects are bounded.
func TestText_OfNestedElementsIsBounded(t *testing.T) {
	t.Parallel()
	nested := "<a>" + strings.Repeat("<a>", 200) + strings.Repeat("x", 100<<10) +
		strings.Repeat("</a>", 200) + "</a>"
	define := func(d contract.Definition) *contract.Set {
		d.Name, d.Root = "a", "a"
		set, err := contract.New([]contract.Definition{d}, contract.Limits{MaxBody: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}

	for name, d := range map[string]contract.Definition{
		"Fields": {Fields: []contract.Field{{Path: ".//a", Rule: "required"}}},
		"Show":   {Show: []contract.ShownField{{Name: "A", Path: ".//a"}}},
		"Key":    {Key: contract.KeyPaths{".//a"}},
		"Redact": {Redact: []string{".//a"}},
	} {
		_, err := define(d).Accept(t.Context(), "", []byte(nested))
		if p := problemOf(t, err); p.Rule != "text" ||
			!strings.Contains(p.Message, "selects elements in each other") {
			t.Errorf("%s: got %v, want a refusal of nested elements", name, err)
		}
	}

	extractor, err := contract.NewExtractor([]contract.Selection{{Path: ".//a"}})
	if err != nil {
		t.Fatal(err)
	}

	set := define(contract.Definition{})
	if _, err = set.Extract(t.Context(), extractor, xml, []byte(nested)); weir.KindOf(err) !=
		weir.Malformed {
		t.Errorf("extracted with the error %v, want Malformed", err)
	}

	// A few levels are usual, and elements beside each other have no limit.
	for _, body := range []string{"<a><a>x<a>y</a></a></a>",
		"<a>" + strings.Repeat("<a>x</a>", 20_000) + "</a>"} {
		if _, err := set.Extract(t.Context(), extractor, xml, []byte(body)); err != nil {
			t.Errorf("%.30s: got %v, want no error", body, err)
		}
	}
}

// The text of an element around a redacted one contains the redacted text.
func TestRedact_HidesTextsAroundRedactedElements(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "o", Root: "o", Redact: []string{"./p/card"},
		Show:   []contract.ShownField{{Name: "Pay", Path: "./p"}, {Name: "Note", Path: "./n"}},
		Fields: []contract.Field{{Path: "./p", Rule: "max=3"}}}}, contract.Limits{MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}

	found, err := set.Check(t.Context(), xml, []byte("<o><p>by <card>4711</card></p><n>n</n></o>"))
	if err != nil || found.Message.Shown["Pay"] != contract.RedactedMark ||
		found.Message.Shown["Note"] != "n" {
		t.Errorf("shown %q, %v; want the mark, and n", found.Message.Shown, err)
	}

	if len(found.Problems) != 1 || strings.Contains(found.Problems[0].Message, "4711") {
		t.Errorf("got %+v, want one problem without the redacted text", found.Problems)
	}
}

func TestCompareText(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@id"},
		Fields: []contract.Field{{Path: "./t", Rule: "required"}}, Redact: []string{"./s"},
		Show: []contract.ShownField{{Name: "S", Path: "./s"}}}}, contract.Limits{MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}

	steps := func(string) []contract.Selection {
		return []contract.Selection{{Path: "./u"}, {Path: "./t", Form: contract.FormInner},
			{Path: "./u/@x"}}
	}

	body := "<a id='1'>\n<t>x<i>y</i></t>\n<u x='1'>plain</u><u><b>z</b></u><s>k<i>l</i></s></a>"
	got, err := set.CompareText(t.Context(), xml, []byte(body), steps)
	want := []contract.TextDifference{{Setting: "fields", Path: "./t", Line: 2, Former: "x",
		Present: "xy"},
		{Setting: "show S", Path: "./s", Line: 3, Former: contract.RedactedMark,
			Present: contract.RedactedMark},
		{Setting: "steps", Path: "./u", Line: 3, Former: "", Present: "z"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// Conditions in brackets compare the same values as paths do: the text of all elements inside,
// without surrounding white space, and an attribute without a prefix in no namespace.
func TestConditions_CompareTheStringValue(t *testing.T) {
	t.Parallel()
	const body = `<r xmlns:x="u"><item x:type="b"><name>Growth of <i>E. coli</i> in milk</name>` +
		`<n>1</n></item><item type=" b "><name><b>Harbour</b></name><n>2</n></item>` +
		"<item><name>\n  Harbour opens\n</name><n>3</n></item><item><name><i/></name><n>4</n></item>" +
		`<x:item>a<i>b</i>c</x:item></r>`
	tree, err := contract.ParseTree([]byte(body), "", contract.Limits{})
	if err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		"./item[name='Growth of E. coli in milk']/n": "1", "./item[name='Growth of ']/n": "",
		"./item[name='Harbour']/n": "2", `./item[ name = "Harbour opens" ]/n`: "3",
		"./item[name='']/n": "4", "./item[name]/n": "1 2 3 4",
		"./item[name=' Harbour ']/n": "2", "./item/name[.='Harbour']/../n": "2",
		"./item/name[text()='Harbour']/../n": "2", "./item/name[text()]/../n": "1 2 3",
		"./item[@type='b']/n": "2", "./item[@type]/n": "2", "./item[@x:type='b']/n": "1",
		"./item[.='abc']": "abc", "./item[text()='a']": "",
		"./*[namespace-uri()='u']": "abc", "./*[namespace-prefix()='x']": "abc",
		"./*[local-name()='item'][.='abc']": "abc", "./*[name()='x:item']": "abc",
		".//n/..[name='Harbour']/n": "2", ".//n/..[2]/n": "",
	} {
		p, err := contract.CompileTreePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}

		if got := strings.Join(slices.Collect(tree.Texts(p)), " "); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
