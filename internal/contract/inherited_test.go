package contract_test

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/weir"
)

// A part that stands alone has the address, the language and the white space rule of the document.
func TestSplit_InheritsAttributesOfXML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, document, want string }{
		"Base": {"/a/b", `<a xml:base="https://example.com/x/"><b/></a>`,
			`<b xml:base="https://example.com/x/"/>`},
		"Language":      {"/a/b", `<a xml:lang="de"><b>1</b></a>`, `<b xml:lang="de">1</b>`},
		"LanguageOwn":   {"/a/b", `<a xml:lang="de"><b xml:lang='en'/></a>`, `<b xml:lang='en'/>`},
		"LanguageNone":  {"/a/b", `<a xml:lang="de"><b xml:lang=''/></a>`, `<b xml:lang=''/>`},
		"LanguageEnded": {"/a/c/b", `<a xml:lang="de"><c xml:lang=""><b/></c></a>`, `<b/>`},
		"Space": {"//b", `<a xml:space="preserve"><c><b/></c></a>`,
			`<b xml:space="preserve"/>`},
		"AllAndNamespace": {"/a/*",
			`<a xmlns="u" xml:space="default" xml:base="http://h" xml:lang="x"><b/></a>`,
			`<b xmlns="u" xml:base="http://h" xml:lang="x" xml:space="default"/>`},
		"Nearest":  {"//b", `<a xml:lang="de"><c xml:lang="en"><b/></c></a>`, `<b xml:lang="en"/>`},
		"Siblings": {"//b", `<a xml:lang="de"><c xml:lang="en"/><b/></a>`, `<b xml:lang="de"/>`},
		"Resolved": {"//b", `<a xml:base="http://h/x/y"><c xml:base="z/"><b/></c></a>`,
			`<b xml:base="http://h/x/z/"/>`},
		"ResolvedOwn": {"//b",
			"<a xml:base=\"http://h/x/\"><b k='xml:base=\"q\"' xml:base\n=\t'../z'  n='1'>2</b></a>",
			`<b xml:base="http://h/z" k='xml:base="q"'  n='1'>2</b>`},
		"OwnIsAbsolute": {"//b", `<a xml:base="http://h/x/"><b xml:base='http://g/'/></a>`,
			`<b xml:base='http://g/'/>`},
		"OwnIsEmpty": {"//b", `<a xml:base="http://h/x/"><b xml:base=""/></a>`,
			`<b xml:base="http://h/x/"/>`},
		"OnlyOwn": {"//b", `<a><b xml:base="x/"/></a>`, `<b xml:base="x/"/>`},
		"Relative": {"//b", `<a xml:base="x/y?q"><b xml:base="z"/></a>`,
			`<b xml:base="x/z"/>`},
		"RelativeQuery": {"//b", `<a xml:base="x/y?q"><b xml:base="?r"/></a>`,
			`<b xml:base="x/y?r"/>`},
		"RelativeRoot": {"//b", `<a xml:base="x/y"><b xml:base="/z"/></a>`, `<b xml:base="/z"/>`},
		"RootedPaths": {"//b", `<a xml:base="/x/y"><b xml:base="z"/></a>`,
			`<b xml:base="/x/z"/>`},
		"WithoutScheme": {"//b", `<a xml:base="//h/x/"><b xml:base="z"/></a>`,
			`<b xml:base="//h/x/z"/>`},
		"OfOneKind": {"//b", `<a xml:base="urn:x:y"><b xml:base="z"/></a>`,
			`<b xml:base="z"/>`},
		"NoAddress": {"//b", `<a xml:base="http://h/%zz"><b xml:base="z"/></a>`,
			`<b xml:base="z"/>`},
		"Escaped": {"//b", `<a xml:base='http://h/?a="1"&amp;b=&lt;2'><b/></a>`,
			`<b xml:base="http://h/?a=&#34;1&#34;&amp;b=&lt;2"/>`},
		"InsideThePart": {"/a/b", `<a xml:lang="de"><b><c xml:lang="en"/></b></a>`,
			`<b xml:lang="de"><c xml:lang="en"/></b>`},
		"OtherPrefix": {"/a/b", `<a xmlns:q="u" q:lang="de" lang="x"><b/></a>`, `<b xmlns:q="u"/>`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := splitText(t, strings.NewReader(c.document), "", c.path)
			if want := []string{"1 " + c.want}; err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q and the error %v, want %q", got, err, want)
			}
		})
	}
}

// Addresses that each level of a document makes longer cost bounded memory.
func TestSplit_BoundsInheritedAttributes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000) + "/"
	for document, want := range map[string]string{
		`<a xml:base="http://h/` + long + `"><c xml:base="` + long +
			`"/></a>`: "xml:base has more than 4096 bytes",
		`<a xml:lang="` + long + long +
			`"><b/></a>`: "inherits more than 4096 bytes",
	} {
		_, err := splitText(t, strings.NewReader(document), "", "//b")
		if weir.KindOf(err) != weir.Malformed || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want Malformed with %q", err, want)
		}
	}
}
