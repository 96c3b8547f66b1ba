package contract

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// Form says in which form an Extractor returns a selected value.
type Form int

// The forms of a selected value.
const (
	// an attribute's value, or the text of an element, without surrounding space
	FormText  Form = iota
	FormInner      // the element's content as markup
	FormOuter      // the element itself as markup
)

// Selection is a path and the form of its values.
type Selection struct {
	Path string
	Form Form
}

// Extractor reads values from the bodies of messages. It is safe for concurrent use.
type Extractor struct {
	paths []*path
	forms []Form
	needs needs
}

// CheckSelection returns the problem of a selection, or nil.
func CheckSelection(s Selection) error {
	_, err := compileSelection(s)
	return err
}

func compileSelection(s Selection) (*path, error) {
	p, err := compilePath(s.Path)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, errors.New("the path is empty; write one such as ./title or ./@id")
	case p.attr != "" && s.Form != FormText:
		return nil, errors.New("an attribute has no markup; read it by text")
	}

	return p, nil
}

// NewExtractor compiles the selections.
func NewExtractor(selections []Selection) (*Extractor, error) {
	x := &Extractor{}
	for _, s := range selections {
		p, err := compileSelection(s)
		if err != nil {
			return nil, err
		}

		x.paths, x.forms = append(x.paths, p), append(x.forms, s.Form)
		x.needs.merge(p.needs)
		if s.Form != FormText {
			x.needs.all, x.needs.markup = true, true
		}
	}

	return x, nil
}

// Extract returns the values of each selection, in the order of the selections. The body must be
// one that Accept accepts, and contentType must not be empty. The error is a *weir.Error of the
// kind Malformed or Unsupported. If ctx ends while Extract waits for memory, the kind is
// Unavailable.
func (s *Set) Extract(ctx context.Context, x *Extractor, contentType string,
	body []byte) ([][]string, error) {
	if len(x.paths) == 0 {
		return nil, nil
	}

	charset, err := parseContentType(contentType)
	if err != nil {
		return nil, err
	}

	weight := min(estimateMemory(body), s.limits.Memory)
	if err := s.memory.Acquire(ctx, weight); err != nil {
		return nil, &weir.Error{Kind: weir.Unavailable, Op: "extract",
			Message: "too much is being read at the moment", Err: err}
	}
	defer s.memory.Release(weight)
	text, err := decodeBody(body, charset)
	if err != nil {
		return nil, err
	}

	_, doc, err := scanDocument(text, s.limits, func(qualifiedName) needs { return x.needs })
	if err != nil {
		return nil, err
	}

	values := make([][]string, len(x.paths))
	for i, p := range x.paths {
		if x.forms[i] == FormText {
			if problems := p.checkNested(doc); len(problems) > 0 {
				return nil, malformedError(problems[0].Message, problems...)
			}
		}
		values[i] = p.selectForm(doc, x.forms[i])
	}

	return values, nil
}

func (p *path) selectForm(doc *etree.Document, form Form) []string {
	if form == FormText {
		return slices.Clone(p.selectValues(doc))
	}

	var out []string
	spaces := namespaces{}
	for _, e := range p.selectPlaces(doc) {
		var b strings.Builder
		if form == FormOuter {
			writeElement(&b, e, spaces.listInherited(e))
		} else {
			writeContent(&b, e, spaces.listInherited)
		}

		out = append(out, trimSpace(b.String()))
	}

	return out
}

// voidElements are the HTML elements that never have an end tag. Each other element gets an end tag
// even if it is empty, because HTML parsers read <p/> as <p>.
var voidElements = map[string]bool{"area": true, "base": true, "br": true, "col": true,
	"embed": true, "hr": true,
	"img": true, "input": true, "link": true, "meta": true, "source": true, "track": true,
	"wbr": true}

var (
	escapeText      = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	escapeAttribute = strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;", "\n", "&#10;",
		"\t", "&#9;", "\r", "&#13;")
)

// writeElement writes an element as markup. The start tag also gets the attributes in inherited.
func writeElement(b *strings.Builder, e *etree.Element, inherited []etree.Attr) {
	b.WriteString("<" + e.FullTag())
	for _, a := range inherited {
		b.WriteString(" " + a.FullKey() + `="` + escapeAttribute.Replace(a.Value) + `"`)
	}

	for _, a := range e.Attr {
		b.WriteString(" " + a.FullKey() + `="` + escapeAttribute.Replace(a.Value) + `"`)
	}

	if len(e.Child) == 0 && voidElements[strings.ToLower(e.Tag)] {
		b.WriteString("/>")
		return
	}

	b.WriteString(">")
	writeContent(b, e, func(*etree.Element) []etree.Attr { return nil })
	b.WriteString("</" + e.FullTag() + ">")
}

// writeContent writes the content of an element as markup. The start tags of its children also get
// the attributes that inheritedBy returns.
func writeContent(b *strings.Builder, e *etree.Element,
	inheritedBy func(child *etree.Element) []etree.Attr) {
	for _, child := range e.Child {
		switch c := child.(type) {
		case *etree.Element:
			writeElement(b, c, inheritedBy(c))
		case *etree.CharData:
			b.WriteString(escapeText.Replace(c.Data))
		}
	}
}

// Tree is a parsed XML document, such as an answer of the CMS.
type Tree struct{ doc *etree.Document }

// TreePath is a compiled path into a Tree.
type TreePath struct{ *path }

// CompileTreePath compiles a path in the syntax of contract paths.
func CompileTreePath(given string) (TreePath, error) {
	p, err := compileSelection(Selection{Path: given})
	return TreePath{p}, err
}

// ParseTree parses a document. The encoding is the one of the byte order mark or of the XML
// declaration, or else UTF-8, or else the charset, which can be empty: many CMSs send a charset that
// is not the one of their documents. ParseTree ignores limits.MaxBody and limits.Memory.
func ParseTree(body []byte, charset string, limits Limits) (Tree, error) {
	first, second := "", charset
	if !CanBeUTF8(charset) {
		first, second = charset, ""
	}

	text, err := decodeBody(body, first)
	if err != nil && charset != "" {
		if other, err2 := decodeBody(body, second); err2 == nil {
			text, err = other, nil
		}
	}
	if err != nil {
		return Tree{}, err
	}

	_, doc, err := scanDocument(text, limits.orDefaults(), func(qualifiedName) needs {
		return needs{all: true, markup: true}
	})
	return Tree{doc}, err
}

// Root returns the local name of the root element.
func (t Tree) Root() string { return t.doc.Root().Tag }

// Texts returns the values that a path selects, in the order of the document. Only the values that
// the caller takes are built, because an answer of the CMS can have many elements in each other.
func (t Tree) Texts(p TreePath) iter.Seq[string] {
	return func(yield func(string) bool) {
		p.visitValues(t.doc,
			func(v placedValue) bool { return yield(v.text) })
	}
}
