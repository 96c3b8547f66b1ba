package dashboard

import (
	"strings"
	"unicode/utf8"
)

// token is a piece of a body's XML.
type token struct{ Class, Text string }

// The classes of tokens.
const (
	tagToken     = "tag"
	textToken    = "text"
	commentToken = "comment" // comments, declarations and instructions
	dataToken    = "data"    // CDATA
)

// shownBytes is the largest number of bytes that the page shows of a body or a difference.
const shownBytes = 64 << 10

// firstPart returns the beginning of a text: at most shownBytes, and only whole characters. It
// reports whether it cut the text.
func firstPart(text string) (part string, cut bool) {
	if len(text) <= shownBytes {
		return text, false
	}

	end := shownBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end], true
}

// tokenizeXML splits XML into tokens. It accepts any text, also malformed XML. The concatenated
// texts of the tokens are the original text.
func tokenizeXML(text string) []token {
	var all []token
	for text != "" {
		var t token
		t, text = nextToken(text)
		all = append(all, t)
	}
	return all
}

var ends = []struct{ begin, end, class string }{
	{"<!--", "-->", commentToken}, {"<![CDATA[", "]]>", dataToken}, {"<?", "?>", commentToken},
	{"<!", ">", commentToken},
}

func nextToken(text string) (token, string) {
	if text[0] != '<' {
		n := strings.IndexByte(text, '<')
		if n < 0 {
			n = len(text)
		}
		return token{textToken, text[:n]}, text[n:]
	}

	for _, e := range ends {
		if strings.HasPrefix(text, e.begin) {
			n := len(text)
			if i := strings.Index(text[len(e.begin):], e.end); i >= 0 {
				n = len(e.begin) + i + len(e.end)
			}
			return token{e.class, text[:n]}, text[n:]
		}
	}

	n := tagEnd(text)
	return token{tagToken, text[:n]}, text[n:]
}

// tagEnd returns the offset after the tag at the beginning of text. A ">" in a quoted value does
// not end the tag.
func tagEnd(text string) int {
	var quote byte
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}

		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i + 1
		}
	}

	return len(text)
}

// maxIndent limits the indentation of deeply nested elements.
const maxIndent = 20

// indentXML puts each tag on its own line. It does not change an element that directly contains
// text, because white space can matter there.
func indentXML(text string) []token {
	in := tokenizeXML(text)
	ends := findMixedContent(in)
	var out []token
	depth := 0
	newline := func() {
		if len(out) > 0 {
			out = append(out, token{textToken,
				"\n" + strings.Repeat("  ", min(max(depth, 0), maxIndent))})
		}
	}

	for i := 0; i < len(in); i++ {
		t := in[i]
		if t.Class == textToken && strings.TrimSpace(t.Text) == "" {
			continue
		}

		if isEndTag(t) {
			depth--
		}

		newline()

		if end, whole := ends[i]; whole {
			out = append(out, in[i:end]...)
			i = end - 1
			continue
		}

		out = append(out, t)
		if isStartTag(t) {
			depth++
		}
	}

	return out
}

func isStartTag(t token) bool {
	return t.Class == tagToken && !strings.HasPrefix(t.Text, "</") &&
		!strings.HasSuffix(t.Text, "/>")
}

func isEndTag(t token) bool { return t.Class == tagToken && strings.HasPrefix(t.Text, "</") }

// findMixedContent finds the elements that directly contain text, and the elements without content.
// It maps the index of an element's start tag to the index after its end tag. The indexes are
// positions in the slice of tokens.
func findMixedContent(in []token) map[int]int {
	type element struct {
		begin int
		text  bool
	}

	ends := map[int]int{}
	var around []element
	for i, t := range in {
		switch {
		case isStartTag(t):
			around = append(around, element{begin: i})
		case isEndTag(t) && len(around) > 0:
			e := around[len(around)-1]
			around = around[:len(around)-1]
			if e.text || i == e.begin+1 {
				ends[e.begin] = i + 1
			}

		case len(around) > 0 &&
			(t.Class == dataToken || t.Class == textToken && strings.TrimSpace(t.Text) != ""):
			around[len(around)-1].text = true
		}
	}

	return ends
}

// diffLine is a line of a unified diff.
type diffLine struct{ Tone, Text string }

func diffLines(text string) []diffLine {
	var all []diffLine
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		tone := ""
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"),
			strings.HasPrefix(line, "@@"):
			tone = "head"
		case strings.HasPrefix(line, "+"):
			tone = "added"
		case strings.HasPrefix(line, "-"):
			tone = "removed"
		}

		all = append(all, diffLine{tone, line})
	}

	return all
}
