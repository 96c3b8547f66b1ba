package contract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// describeToken returns the content of a token as text. A plain text is described as a text.
func describeToken(token xml.Token) string {
	switch one := token.(type) {
	case plainText:
		return fmt.Sprintf("text %q", string(one))
	case xml.CharData:
		return fmt.Sprintf("text %q", string(one))
	}

	return fmt.Sprintf("%T %q", token, token)
}

// listTokens returns a line for each token with its end, and one for the error.
func listTokens(next func() (xml.Token, error), offset func() int64) (lines []string, end error) {
	for {
		token, err := next()
		if err != nil {
			return append(lines, fmt.Sprint(err, " at ", offset())), err
		}
		lines = append(lines, fmt.Sprint(describeToken(token), " to ", offset()))
	}
}

// checkTokens compares the tokens of a document with those of encoding/xml. The line number in an
// error is not compared: the scanner counts lines itself.
func checkTokens(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	want, wantErr := listTokens(d.RawToken, d.InputOffset)
	r := &markupReader{text: text}
	got, gotErr := listTokens(r.next, func() int64 { return int64(r.offset) })

	var gotSyntax, wantSyntax *xml.SyntaxError
	if errors.As(gotErr, &gotSyntax) && errors.As(wantErr, &wantSyntax) &&
		gotSyntax.Msg == wantSyntax.Msg {
		got[len(got)-1], want[len(want)-1] = "", ""
		if int64(r.offset) != d.InputOffset() {
			t.Fatalf("%q: got the error at %d, want it at %d", text, r.offset, d.InputOffset())
		}
	}

	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%q: got\n%s\nwant\n%s", text, g, w)
	}
}

// tokenPieces are parts of documents, plain and not, whole and broken.
var tokenPieces = []string{"<a>", "</a>", "<a/>", "<b x='1'>", `<b x="1" y = '2' />`, "</b >", "text",
	" ", "\r\n", "\n", "&amp;", "&#65;", "&none;", "&", "]]>", "]]", "<![CDATA[ a<b ]]>", "<!-- c -->",
	"<!-- -- -->", "<?target data?>", "<?xml version='1.0' encoding='utf-8'?>", "<!DOCTYPE a>", "é",
	"<é>", "<aé>", "</é>", "<n:a n:x='1'>", "</n:a>", "<:a>", "<a:>", "<n:n:a>", "<1>", "<n:1/>",
	"<a x>", "<a x=1>", "<a x='<'>", "<a x='&lt;'>", "<a x='\r\n'/>", "<a x='1'y='2'/>", "<a / >",
	"<", "</", "<a", "<a x", "<a x=", "<a x='", "</a", ">", "'", `"`, "=", "/", "\xff", "-",
	"<a x='é'/>", "<a x='\xff'>", "\u2028", "<a.b-c_d/>"}

func TestMarkupReader_ReadsWhatTheDecoderReads(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var text strings.Builder
		for range 1 + random.IntN(8) {
			text.WriteString(tokenPieces[random.IntN(len(tokenPieces))])
		}
		checkTokens(t, text.String())
	}

	for _, piece := range tokenPieces {
		checkTokens(t, piece)
	}
}

// A decoder reads few tokens of an ordinary message.
func TestMarkupReader_ReadsAMessageItself(t *testing.T) {
	t.Parallel()
	r := &markupReader{text: "<n:article n:path='/a' version=\"1\">\n<title>Häfen</title><p/><br />" +
		"<text>a b</text >\n</n:article>"}
	for count := 0; ; count++ {
		_, err := r.next()
		if errors.Is(err, io.EOF) && count == 14 {
			return
		}

		if err != nil || r.decoder != nil {
			t.Fatalf("token %d: got error %v, a decoder: %t, want 14 tokens without a decoder", count,
				err, r.decoder != nil)
		}
	}
}

func FuzzMarkupReader(f *testing.F) {
	for _, piece := range tokenPieces {
		f.Add("<a>" + piece + "</a>")
	}
	f.Fuzz(func(t *testing.T, text string) {
		if at, _ := findForbiddenCharacter(text); at < 0 {
			checkTokens(t, text)
		}
	})
}
