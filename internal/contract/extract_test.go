package contract_test

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/contract"
)

func TestSet_Extract(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "article"}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	body := `<?xml version="1.0" encoding="ISO-8859-1"?><article id="7">` +
		"<title> G\xfc" + `n &amp; <b>x</b></title>` +
		`<body><p class="a&quot;b">1 &lt; 2<br/></p><p></p><![CDATA[<i>]]></body>` +
		`<tag>a</tag><tag/><tag>b</tag></article>`

	for _, c := range []struct {
		selection contract.Selection
		want      []string
	}{
		{contract.Selection{Path: "./@id"}, []string{"7"}},
		{contract.Selection{Path: "./title"}, []string{"Gün & x"}},
		{contract.Selection{Path: "./tag"}, []string{"a", "", "b"}},
		{contract.Selection{Path: "./absent"}, nil},
		{contract.Selection{Path: "./body", Form: contract.FormInner},
			[]string{`<p class="a&quot;b">1 &lt; 2<br/></p><p></p>&lt;i&gt;`}},
		{contract.Selection{Path: "./tag[1]", Form: contract.FormOuter}, []string{"<tag>a</tag>"}},
	} {
		x, err := contract.NewExtractor([]contract.Selection{c.selection})
		if err != nil {
			t.Fatal(err)
		}

		got, err := set.Extract(t.Context(), x, "application/xml", []byte(body))
		if err != nil || !slices.Equal(got[0], c.want) {
			t.Errorf("%+v: got %q, %v; want %q", c.selection, got, err, c.want)
		}
	}
}

func TestSet_Extract_InTheOrderOfTheDocument(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "article"}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	body := `<article><part><b n="1">1</b><part><b n="2">2</b></part><b n="3">3</b></part><b n="4">4</b></article>`
	for path, want := range map[string][]string{
		"//b": {"1", "2", "3", "4"}, "//b/@n": {"1", "2", "3", "4"},
		".//part/../b": {"1", "3", "4"},
		".//part/b":    {"1", "2", "3"},
	} {
		x, err := contract.NewExtractor([]contract.Selection{{Path: path}})
		if err != nil {
			t.Fatal(err)
		}

		got, err := set.Extract(t.Context(), x, "application/xml", []byte(body))
		if err != nil || !slices.Equal(got[0], want) {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
}

// The markup of an element declares the prefixes that it inherits, so that it is well-formed alone.
func TestSet_Extract_DeclaresInheritedPrefixes(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a"}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	body := `<a xmlns="urn:d" xmlns:x="urn:1" xmlns:y="urn:&lt;2" xmlns:z="urn:3"><b xmlns:x="urn:4" xml:lang="en">` +
		`<x:c y:n="1"><x:d/></x:c>t<p>1</p><e xmlns:y="urn:5" y:n="2"/></b></a>`

	for _, c := range []struct {
		selection contract.Selection
		want      string
	}{
		{contract.Selection{Path: "./b", Form: contract.FormOuter},
			`<b xmlns:y="urn:&lt;2" xmlns:x="urn:4" xml:lang="en">` +
				`<x:c y:n="1"><x:d></x:d></x:c>t<p>1</p><e xmlns:y="urn:5" y:n="2"></e></b>`},
		{contract.Selection{Path: "./b", Form: contract.FormInner},
			`<x:c xmlns:x="urn:4" xmlns:y="urn:&lt;2" y:n="1">` +
				`<x:d></x:d></x:c>t<p>1</p><e xmlns:y="urn:5" y:n="2"></e>`},
		{contract.Selection{Path: "./b/p", Form: contract.FormOuter}, `<p>1</p>`},
		{contract.Selection{Path: "./b/x:c/x:d", Form: contract.FormOuter},
			`<x:d xmlns:x="urn:4"></x:d>`},
	} {
		x, err := contract.NewExtractor([]contract.Selection{c.selection})
		if err != nil {
			t.Fatal(err)
		}

		got, err := set.Extract(t.Context(), x, "application/xml", []byte(body))
		if err != nil || len(got[0]) != 1 || got[0][0] != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c.selection, got, err, c.want)
		}
	}
}

func TestCheckSelection_Refuses(t *testing.T) {
	t.Parallel()
	for selection, want := range map[contract.Selection]string{
		{Path: ""}:                                 "empty",
		{Path: "./a["}:                             "brackets",
		{Path: "./@a", Form: contract.FormInner}:   "no markup",
		{Path: "./a//", Form: contract.FormOuter}:  "empty",
		{Path: "./a b/c", Form: contract.FormText}: "not a step",
	} {
		if err := contract.CheckSelection(selection); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", selection, err, want)
		}
	}
}

func TestParseTree(t *testing.T) {
	t.Parallel()
	tree, err := contract.ParseTree(
		[]byte(`<methodResponse><fault><int>403</int></fault></methodResponse>`), "", contract.Limits{})
	if err != nil {
		t.Fatal(err)
	}

	p, err := contract.CompileTreePath("//fault//int")
	if got := slices.Collect(tree.Texts(p)); err != nil || tree.Root() != "methodResponse" ||
		!slices.Equal(got, []string{"403"}) {
		t.Errorf("got %s %q, %v; want methodResponse and 403", tree.Root(), got, err)
	}

	for _, text := range []string{"", "<a>", "<html><br></html>", "no"} {
		if _, err := contract.ParseTree([]byte(text), "", contract.Limits{}); err == nil {
			t.Errorf("%q: got no error, want one", text)
		}
	}
}
