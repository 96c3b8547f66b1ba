package contract

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func needAll(qualifiedName) needs {
	return needs{all: true, allTexts: true, declarations: true,
		attributes: map[string]bool{"a": true, "b": true, "c": true, "xmlns": true}}
}

// A path must find the same values in the whole tree and in a tree with only the needed parts.
func TestNeeds_PathsFindTheSame(t *testing.T) {
	t.Parallel()
	var paths []*path
	for _, given := range []string{"./@a", "/a/@b", "./a", "./a/b", "./p:a/@b", "./a/../@a",
		"./a[2]/b", "./a[-1]", "./a[@b]/c", "./b[@a='1']", "./.", "/a/a/a",
		"./*/b", ".//c", ".//b/../@a", "./a[b]", "./a[b='t']", "./a[text()='t']",
		"./a[local-name()='a']",
		"./a[namespace-uri()='u']/@c", "./*[2]/@p:b", "./{u}a/@b", ".//{u}a/b",
		"./a/@{u}b", "./{}a/@a", "./a/{u}a[1]"} {
		p, err := compilePath(given)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}

	random, found := rand.New(rand.NewPCG(1, 2)), 0
	for range 100 {
		text := randomXML(random, 0)
		_, whole, err := scanDocument(text, Limits{}.orDefaults(), needAll)
		if err != nil {
			t.Fatalf("scan all of %s: got the error %v, want none", text, err)
		}

		for _, p := range paths {
			_, doc, err := scanDocument(text, Limits{}.orDefaults(),
				func(qualifiedName) needs { return p.needs })
			if err != nil {
				t.Fatalf("scan the needed parts of %s: got the error %v, want none", text, err)
			}

			got, want := p.selectValues(doc), p.selectValues(whole)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s in %s: got %q, want %q", p.given, text, got, want)
			}

			found += len(want)
		}
	}

	if found < 300 {
		t.Errorf("compared %d values, want at least 300", found)
	}
}

// randomXML returns an element with random content. It uses few different names, so that paths find
// many values.
func randomXML(random *rand.Rand, depth int) string {
	names := []string{"a", "a", "b", "c", "d", "p:a"}
	n := names[random.IntN(len(names))]
	if depth == 0 {
		n = "a"
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<%s xmlns:p="u"`, n)

	for _, attr := range []string{"a", "b", "c", "d", "p:b", "xmlns"} {
		if random.IntN(3) == 0 {
			fmt.Fprintf(&b, ` %s="%d"`, attr, random.IntN(3))
		}
	}

	b.WriteString(">")

	for range random.IntN(5) {
		switch random.IntN(6) {
		case 0:
			b.WriteString("t")
		case 1:
			b.WriteString("<?x y?>")
		case 2:
			b.WriteString("<!-- x --><![CDATA[<]]>")
		default:
			if depth < 4 {
				b.WriteString(randomXML(random, depth+1))
			}
		}
	}

	return b.String() + "</" + n + ">"
}

// If each step of a contract's paths is a name, the tree has only the elements and attributes with
// these names. An element that marks mixed content is empty.
func TestNeeds_TheRestIsNotKept(t *testing.T) {
	t.Parallel()
	c, problems := compileDefinition(Definition{Name: "r", Root: "r", Key: KeyPaths{"./@id"},
		Fields: []Field{{Path: "./title", Rule: "required"}}})
	if len(problems) > 0 {
		t.Fatalf("got %v, want 0 problems", problems)
	}

	text := `<r id="1" x="2"><title y="3">T<i>u</i></title>` +
		strings.Repeat("<p>x</p>", 1000) + `</r>`
	_, doc, err := scanDocument(text, Limits{}.orDefaults(),
		func(qualifiedName) needs { return c.needs })
	if err != nil {
		t.Fatal(err)
	}

	got, err := doc.WriteToString()
	if want := `<r id="1"><title>T<i/>u</title></r>`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
