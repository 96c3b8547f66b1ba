package conceal_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"weir/internal/conceal"
)

const mark = "█"

func replace(t *testing.T, f *conceal.Finder, text string) string {
	t.Helper()
	got, isSafe := f.Replace(text, mark)
	if !isSafe {
		return "unsafe"
	}
	return got
}

// Each text is the value as a CMS, a framework or a database writes it.
func TestFinder_FindsEachFormOfAValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, text, want string }{
		{"plain", "Müller", "author Müller!", "author █!"},
		{"another case", "Müller", "MÜLLER", "█"},
		{"json_encode of PHP", "Müller", `{"m":"M\u00fcller is unknown"}`, `{"m":"█ is unknown"}`},
		{"upper-case digits", "Zoë Lö", `Zo\u00EB L\u00F6`, "█"},
		{"surrogates", "a😀bcd", `a\ud83d\ude00bcd`, "█"},
		{"braces", "Müller", `M\u{fc}ller`, "█"},
		{"Python", "Müller", `M\xfcller M\xc3\xbcller M\U000000fcller`, "█ █ █"},
		{"octal digits", "Müller", `M\303\274ller`, "█"},
		{"escape of JavaScript", "Müller", "M%u00FCller", "█"},
		{"escaped slashes", "01/02/1980", `born 01\/02\/1980.`, "born █."},
		{"esc_html of WordPress", "O'Brien", "<p>O&#039;Brien</p>", "<p>█</p>"},
		{"hexadecimal reference", "O'Brien", "O&#x27;Brien O&#X27;Brien", "█ █"},
		{"reference without semicolon", "O'Brien", "O&#39Brien", "█"},
		{"named references", "Müller & Söhne", "M&uuml;ller &amp; S&ouml;hne", "█"},
		{"references twice", "Müller", "M&amp;uuml;ller M&amp;#252;ller", "█ █"},
		{"decomposed", "Müller", "user Mu\u0308ller.", "user █."},
		{"composed", "Mu\u0308ller", "user Müller.", "user █."},
		{"accent at the end", "Andre\u0301", "an Andre\u0301!", "an █!"},
		{"without accents", "Müller", "MULLER", "█"},
		{"compatibility forms", "file №12", "ﬁle No12", "█"},
		{"full width", "DE123456", "ＤＥ１２３４５６", "█"},
		{"sharp s", "Straße 12", "STRASSE 12", "█"},
		{"dotless i", "IŞIK", "user ışık", "user █"},
		{"no-break space", "Ann\u00a0Lee", "Ann Lee, Ann&nbsp;Lee, Ann\u202fLee, Ann+Lee", "█, █, █, █"},
		{"line break", "Ann Lee", "Ann\\nLee", "█"},
		{"zero width", "Kowalska", "Kow\u200balska Kow&shy;alska", "█ █"},
		{"percent", "Ann & Co", "Ann%20%26%20Co Ann+%26+Co", "█ █"},
		{"percent in lower case", "a/b+c=d1", "a%2fb%2bc%3dd1", "█"},
		{"percent twice", "Ann & Co", "Ann%2520%2526%2520Co", "█"},
		{"percent in ISO 8859-1", "Müller", "M%FCller", "█"},
		{"ISO 8859-1", "Müller", "M\xfcller", "█"},
		{"JSON in JSON", `Ann "A" Lee`, `{"inner":"{\"n\":\"Ann \\\"A\\\" Lee\"}"}`, `{"inner":"{\"n\":\"█\"}"}`},
		{"groups of digits", "4111111111111111", "card 4111-1111-1111-1111, 4111 1111.1111 1111", "card █, █"},
		{"fewer groups", "4111-1111-1111-1111", "card 4111111111111111", "card █"},
		{"telephone", "+493012345678", "phone +49 (30) 123-456-78!", "phone +█!"},
		{"IBAN", "DE89370400440532013000", "DE89.3704.0044.0532.0130.00", "█"},
		{"digits alone", "DE89370400440532013000", "no. 89 3704 0044 0532 0130 00", "no. █"},
		{"base64", "Müller & Co", "[" + base64.StdEncoding.EncodeToString([]byte("Müller & Co")) + "]", "[█]"},
		{"part of base64", "Müller & Co", base64.StdEncoding.EncodeToString([]byte("x: Müller & Co, y")), "eDog█LCB5"},
		{"hexadecimal digits", "41111111", "34313131 31313131", "█"},
		{"quoted-printable", "Müller", "M=C3=BCller, M=FCller, =4D=FCller", "█, █, █"},
		{"broken line of quoted-printable", "Anna Kowalska", "Anna=20Kowal=\r\nska, Anna Kow=\nalska", "█, █"},
		{"no quoted-printable", "ADAM MÜLLER", "name=ADAM M\\u00dcLLER", "name=█"},
		{"header of mail", "Müller", "=?utf-8?Q?M=C3=BCller?= =?utf-8?B?TcO8bGxlcg==?=",
			"=?utf-8?Q?█?= =?utf-8?B?█==?="},
		{"marked words", "4111111111111111", "4111<b>1111</b>1111<wbr />1111", "█"},
		{"marked word", "Kowalska", `found Kow<em class="hit">alska</em>, Kow\u003cem\u003ealska`,
			`found █</em>, █`},
		{"tag", "Kowalska", "<p>Kowalska</p>", "<p>█</p>"},
		{"value with a tag", "Ann <b> Lee", "Ann <b> Lee", "█"},
		{"wrong encoding", "Müller", "MÃ¼ller MÃƒÂ¼ller", "█ █"},
		{"wrong encoding with quotes", "“Müller”", "â€œMÃ¼llerâ€\u009d", "█"},
		{"ASCII letters", "Anna Müller-Ørsted", "/anna-mueller-oersted", "/█"},
		{"slug", "Anna Müller", "anna-muller, anna_mueller", "█, █"},
		{"Perl", "Müller", `M\x{fc}ller`, "█"},
		{"base64 of UTF-16", "s3cr3t-token-77", "[cwAzAGMAcgAzAHQALQB0AG8AawBlAG4ALQA3ADcA]", "[█A]"},
		{"UTF-16", "s3cr3t-token-77", "s\x003\x00c\x00r\x003\x00t\x00-\x00t\x00o\x00k\x00e\x00n\x00-\x007\x007", "█"},
		{"value that looks like an escape", "a%2Fb&amp;c", "a%2Fb&amp;c a%252Fb&amp;amp;c a/b&c", "█ █ █"},
		{"escape before the value", "n3w/pass", `C:\n3w/pass C:\\n3w\/pass`, `C:\█ C:\\█`},
		{"short", "B7", "grade B7, (b7) not AB7 or B70", "grade █, (█) not AB7 or B70"},
		{"short and escaped", "Ü1", `{"m":"\u00dc1"}`, `{"m":"█"}`},
		{"cut", "Ann & Co", "the customer Ann &…", "the customer █…"},
		{"cut in an escape", "Karl Müller", `the customer Karl M\u00f...`, "the customer █..."},
		{"not cut", "Ann & Co", "the customer Ann &", "the customer Ann &"},
		{"word between", "test", "best estimate", "best estimate"},
		{"letters apart", "Kowalska", "Kowal ska", "Kowal ska"},
		{"few digits apart", "12345", "12 345", "12 345"},
		{"separators only", "!?!?!?!?", "what?!", "what?!"},
		{"overlap", "abcdef", "abcabcdefdef", "abc█def"},
	} {
		f := conceal.NewFinder([]string{c.value}, conceal.Options{Shortest: 4, FindsWords: true})
		if got := replace(t, f, c.text); got != c.want {
			t.Errorf("%s: value %q: got %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestFinder_Options(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		o      conceal.Options
		text   string
		want   string
	}{
		{"nothing", nil, conceal.Options{}, "a text", "a text"},
		{"empty value", []string{"", "  "}, conceal.Options{FindsWords: true}, "a text", "a text"},
		{"short values", []string{"abc"}, conceal.Options{Shortest: 6}, "abc", "abc"},
		{"pairs", nil, conceal.Options{Pairs: []string{"pin=4711"}},
			"?pin=4711&v=4711 PIN = 4711", "?pin=█&v=4711 PIN = 4711"},
		{"part", []string{"Kowalski"}, conceal.Options{PartsOf: []string{"Anna Kowalski-Smith"}},
			"Kowalski, an anna", "█, an anna"},
		{"part is left", []string{"Kowalski"}, conceal.Options{PartsOf: []string{"Anna Kowalski-Smith"}},
			`A\u006ena Kowa is gone`, "unsafe"},
		{"several values", []string{"secret", "secret-2"}, conceal.Options{}, "secret-2 and secret", "█ and █"},
		{"escaped too often", []string{"secret"}, conceal.Options{}, "%" + strings.Repeat("25", 9) + "41", "unsafe"},
		{"too many", strings.Fields(manyWords(300)), conceal.Options{MaxBytes: 16 << 10}, "a text", "unsafe"},
		{"too long", []string{strings.Repeat("x", 101)}, conceal.Options{MaxBytes: 100}, "a text", "unsafe"},
		{"no bound", strings.Fields(manyWords(300)), conceal.Options{}, "a word299", "a █"},
	} {
		if got := replace(t, conceal.NewFinder(c.values, c.o), c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func manyWords(count int) string {
	var words []string
	for i := range count {
		words = append(words, "word"+strconv.Itoa(i))
	}
	return strings.Join(words, " ")
}

// encoders are ways to write a value that FuzzFinder nests.
var encoders = []func(string) string{
	strings.ToUpper,
	func(s string) string { return s },
	url.QueryEscape,
	url.PathEscape,
	func(s string) string { return percentEscape.ReplaceAllStringFunc(url.QueryEscape(s), strings.ToLower) },
	html.EscapeString,
	func(s string) string { return jsonText(s, true) },
	func(s string) string { return jsonText(s, false) },
	func(s string) string { return strings.ReplaceAll(jsonText(s, false), "/", `\/`) },
	func(s string) string { return strconv.QuoteToASCII(s)[1 : len(strconv.QuoteToASCII(s))-1] },
	func(s string) string { return escapeEach(s, `\u%04x`) },
	func(s string) string { return escapeEach(s, "&#%d;") },
	func(s string) string { return escapeEach(s, "&#x%X;") },
	norm.NFD.String,
	norm.NFKC.String,
	func(s string) string { return escapeEachByte(s, "=%02X") },
	func(s string) string { return strings.ReplaceAll(s, " ", "\u00a0") },
}

var percentEscape = regexp.MustCompile(`%..`)

// upperCase is the index of the only element of encoders that cannot follow another one.
const upperCase = 0

func jsonText(s string, escapesMarkup bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapesMarkup)
	_ = e.Encode(s)
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// escapeEach escapes each character of the basic plane that is no ASCII letter.
func escapeEach(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		if r > 0xffff || r < 0x80 && unicode.IsLetter(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, format, r)
		}
	}
	return b.String()
}

func escapeEachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

// FuzzFinder checks that no value stays in a text, in whichever of the encodings the text has it. A value that stays
// visible would have most of its letters and digits left between the two marks of the text.
func FuzzFinder(f *testing.F) {
	for i, value := range []string{"Müller & Söhne", "01/02/1980", "eyJ/abc+def/ghi012345==", "O'Brien \"X\"",
		"4111111111111111", "a%2Fb&amp;c", "Ann\u00a0Lee", "İSTANBUL ışık", "日本語テスト", "😀😀 smile", `back\slash\n`} {
		f.Add(value, uint8(i), uint8(i+5))
	}
	f.Add("0😁000000", uint8(9), uint8(36))
	f.Fuzz(func(t *testing.T, value string, first, second uint8) {
		value = strings.TrimSpace(strings.ToValidUTF8(value, ""))
		if int(second)%len(encoders) == upperCase { // it would damage the escapes of the first encoder
			return
		}
		length := len([]rune(value))
		if length < 8 || len(value) > 200 || countWordRunes(value)*5 < length*3 || strings.ContainsFunc(value, isRare) {
			return
		}
		encoded := encoders[int(second)%len(encoders)](encoders[int(first)%len(encoders)](value))
		finder := conceal.NewFinder([]string{value}, conceal.Options{Shortest: 4, FindsWords: true})
		got, isSafe := finder.Replace("<<"+encoded+">>", mark)
		if !isSafe {
			return
		}
		inside, _, _ := strings.Cut(strings.TrimPrefix(got, "<<"), ">>")
		if strings.Contains(inside, mark) && countWordRunes(inside) < 6 {
			return
		}
		t.Errorf("value %q, written as %q: got %q, want it hidden", value, encoded, got)
	})
}

var unit = regexp.MustCompile(`\\\\?u[0-9a-f]{4}`)

// countWordRunes returns the number of letters and digits in a text whose escapes are undone by other code than
// Weir's.
func countWordRunes(text string) (count int) {
	for range 4 {
		if decoded, err := url.PathUnescape(text); err == nil {
			text = decoded
		}
		text = unit.ReplaceAllStringFunc(html.UnescapeString(text), func(found string) string {
			value, _ := strconv.ParseUint(found[len(found)-4:], 16, 32)
			return string(rune(value))
		})
	}
	for _, r := range text {
		if r != '█' && (unicode.IsLetter(r) || unicode.IsNumber(r)) {
			count++
		}
	}
	return count
}

// isRare reports whether a character is one that no text has by intention, or that upper case changes without a way
// back.
func isRare(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.M, unicode.Cf, unicode.Co, unicode.Lm, unicode.Sk) ||
		r > 0x1ffff ||
		!unicode.IsPrint(r) && r != ' ' && r != '\u00a0' || len(norm.NFKD.String(strings.ToUpper(string(r)))) >
		len(norm.NFKD.String(string(r)))+2
}

// The CMS chooses the text, and an upstream chooses the values. The lane waits while Weir hides values in a text.
// Without a bound on the work, these texts would take minutes.
func TestFinder_EndsForHostileTexts(t *testing.T) {
	t.Parallel()
	values := make([]string, 80)
	for i := range values {
		values[i] = strings.Repeat("a ", 90) + strconv.Itoa(i)
	}
	many := conceal.NewFinder(values, conceal.Options{Shortest: 4, FindsWords: true, PartsOf: values[:1]})
	long := conceal.NewFinder([]string{strings.Repeat("a ", 8000) + "b"}, conceal.Options{Shortest: 4})
	const size = 64 << 10
	for name, text := range map[string]string{
		"letters":     strings.Repeat("b", size),
		"same letter": strings.Repeat("a", size),
		"gap at end":  strings.Repeat(strings.Repeat("a", 8000)+strings.Repeat(".", 9), size/8000),
		"spaces":      strings.Repeat("a  ", size/3),
		"backslashes": strings.Repeat(`\`, size),
		"percents":    strings.Repeat("%25", size/3),
		"nested":      "%" + strings.Repeat("25", size/2),
		"references":  strings.Repeat("&amp;", size/5),
		"ampersands":  strings.Repeat("&", size),
		"units":       strings.Repeat(`\u0061`, size/6),
		"accents":     strings.Repeat("a\u0301", size/3),
		"marks":       "a" + strings.Repeat("\u0301", size/2),
		"ligatures":   strings.Repeat("ﷺ", size/3),
		"cut":         strings.Repeat("a", size) + "…",
		"tags":        strings.Repeat("<a>", size/3),
		"open tags":   strings.Repeat("<aa", size/3),
		"equals":      strings.Repeat("=3D", size/3),
	} {
		for _, f := range []*conceal.Finder{many, long} {
			if got, isSafe := f.Replace(text, mark); isSafe && strings.Contains(got, strings.Repeat("a ", 90)) {
				t.Errorf("%s: got %.80q, want no value in it", name, got)
			}
		}
	}
}

func BenchmarkFinder_Replace(b *testing.B) {
	f := conceal.NewFinder([]string{"Müller & Söhne", "4111111111111111", "eyJ/abc+def/ghi012345=="},
		conceal.Options{Shortest: 4, FindsWords: true})
	text := strings.Repeat(`{"message":"the author M\u00fcller \u0026 S\u00f6hne is unknown at /api?x=%20"} `, 30)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		f.Replace(text, mark)
	}
}

func ExampleFinder() {
	f := conceal.NewFinder([]string{"O'Brien", "4111111111111111"}, conceal.Options{Shortest: 4})
	text, isSafe := f.Replace("card 4111-1111-1111-1111 of O&#039;Brien has expired", "[redacted]")
	fmt.Println(text, isSafe)
	fmt.Println(f.Replace(hex.EncodeToString([]byte("O'Brien")), "…"))
	// Output:
	// card [redacted] of [redacted] has expired true
	// … true
}
