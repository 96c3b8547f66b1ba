package cms

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/contract"
)

// Answer is an answer of the CMS.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	IsCut  bool // Weir has not read the whole body
}

// ForeignPage is the reason if IsForeignPage returns true.
const ForeignPage = "the answer is a page of HTML"

const byteOrderMark = "\uFEFF"

// Text returns the body in UTF-8, without a byte order mark. The byte order mark, or else the
// charset of the header Content-Type, is the encoding of the body. If the header names no encoding
// that Weir reads, if the bytes are not of that encoding, or if the body is valid UTF-8 anyway, Text
// does not convert the body.
func (a Answer) Text() string {
	text := string(a.Body)
	decoded, rest, isKnown := contract.DecodeAs(a.encoding(), a.Body)
	if isKnown && (len(rest) == 0 || a.IsCut && len(rest) < contract.MaxCharacter) {
		text = decoded
	}
	return strings.TrimPrefix(text, byteOrderMark)
}

// encoding returns the encoding that the byte order mark of UTF-16 shows, or else the charset of
// the header, except if the body is UTF-8 anyway: many CMSs name the charset of their settings and
// send UTF-8.
func (a Answer) encoding() string {
	// the mark alone can stand in other bytes by chance
	isMarked := bytes.HasPrefix(a.Body, []byte("\xff\xfe")) ||
		bytes.HasPrefix(a.Body, []byte("\xfe\xff"))
	charset := a.Charset()
	switch {
	case isMarked && len(a.Body)%2 == 0 && bytes.IndexByte(a.Body, 0) >= 0:
		return "utf-16"
	case contract.CanBeUTF8(charset) && utf8.Valid(a.Body):
		return ""
	}

	return charset
}

// Charset returns the charset of the header Content-Type, or "".
func (a Answer) Charset() string {
	_, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return params["charset"]
}

// prologue matches the parts of a document that can come before its first tag: white space, a byte
// order mark, comments and instructions such as <?xml … ?>.
var prologue = regexp.MustCompile(`^(?:[\s\x{FEFF}]+|<!--(?s:.*?)-->|<\?(?s:.*?)\?>)*`)

// A page of HTML begins with one of these tags. If its header says HTML, a page can also begin with
// another element.
var (
	pageStart = regexp.MustCompile(
		`(?i)^<(?:!doctype\s+html|(?:html|head|body|title|meta)[\s/>])`)
	elementStart = regexp.MustCompile(
		`(?i)^<(?:b|br|center|div|font|form|frameset|h[1-6]|hr|iframe|img|link|main|` +
			`noscript|p|pre|script|span|style|table)[\s/>]`)
)

// IsForeignPage reports whether the body is a page of HTML. Such a page usually comes from a
// sign-in, a proxy, a firewall or a maintenance in front of the CMS, with the status 200. If
// nothing reads the page, it must not count as success: the message would become delivered although
// the CMS did not make the change.
func (a Answer) IsForeignPage() bool {
	text := a.Text()
	text = text[len(prologue.FindString(text)):]
	if pageStart.MatchString(text) {
		return true
	}
	return a.hasTypeOfHTML() && elementStart.MatchString(text)
}

// IsErrorPage reports whether the body of an answer that is no success is a page of HTML. With the
// type of HTML, it can begin with any element: a server prints such pages without a head.
func (a Answer) IsErrorPage() bool {
	return a.IsForeignPage() ||
		a.hasTypeOfHTML() && strings.HasPrefix(strings.TrimSpace(a.Text()), "<")
}

// hasTypeOfHTML reports whether the header Content-Type names HTML.
func (a Answer) hasTypeOfHTML() bool {
	kind, _, _ := strings.Cut(strings.ToLower(a.Header.Get("Content-Type")), ";")
	return slices.Contains([]string{"text/html", "application/xhtml+xml"}, strings.TrimSpace(kind))
}

// Content is a kind of the body of an answer that is no success.
type Content int

const (
	// OwnWords are other words than a page of HTML: those of the CMS itself.
	OwnWords Content = iota
	// NoWords is an empty body. HTTP servers answer so to requests that they do not understand.
	NoWords
	// ErrorPage is a page of HTML: see Answer.IsErrorPage.
	ErrorPage
)

// Content returns the kind of the body.
func (a Answer) Content() Content {
	switch {
	case a.IsErrorPage():
		return ErrorPage
	case strings.TrimSpace(a.Text()) == "":
		return NoWords
	}
	return OwnWords
}

// IsSuccess reports whether a status alone says that the CMS has done what Weir asked for. A status
// from 206 on is about a part of an answer (206, 226), has one status for each part of a request in
// its body (207, 208), or has no known meaning.
func IsSuccess(status int) bool {
	return status >= http.StatusOK && status <= http.StatusResetContent
}

// FindDoubt returns the reason why the body of a 2xx answer shows no success as long as nothing in
// the settings reads it, such as a document that ends in the middle. If there is none, FindDoubt
// returns "". For pages see IsForeignPage.
func (a Answer) FindDoubt() string {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	encoding := strings.ToLower(strings.TrimSpace(a.Header.Get("Content-Encoding")))
	switch {
	case encoding != "" && encoding != "identity":
		return "the answer is compressed in a way for which Weir has not asked"
	case slices.Contains([]string{"application/problem+json", "application/problem+xml"}, kind):
		return "the answer describes a problem"
	case !a.IsCut && a.endsEarly():
		return "the answer ends in the middle of its JSON or XML"
	}

	return ""
}

// endsEarly reports whether the body is JSON or XML that ends in the middle, as after a crash of
// the CMS.
func (a Answer) endsEarly() bool {
	text := strings.TrimSpace(a.Text())
	switch {
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		d := json.NewDecoder(strings.NewReader(text))
		var value json.RawMessage
		var err error
		for err == nil {
			err = d.Decode(&value)
		}
		return errors.Is(err, io.ErrUnexpectedEOF)

	case strings.HasPrefix(text, "<?xml"):
		return isCutXML(text)
	}

	return false
}

// isCutXML reports whether a document ends before its last element does.
func isCutXML(text string) bool {
	d := xml.NewDecoder(strings.NewReader(text))

	// Text has decoded it
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	for {
		if _, err := d.Token(); err != nil {
			var syntax *xml.SyntaxError
			return errors.As(err, &syntax) && strings.HasPrefix(syntax.Msg, "unexpected EOF")
		}
	}
}
