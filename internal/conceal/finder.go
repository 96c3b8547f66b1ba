package conceal

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Finder finds values in texts, in each form in which a program usually writes a value. Package
// redact and the masks of secrets use it, so both know the same forms.
//
// A Finder decodes the text instead of encoding the values, because there are many ways to write an
// escape, and few to read it. It decodes escapes of JSON, HTML, XML, addresses and programming
// languages as often as they are nested, and then compares without regard to case, accents,
// compatibility forms and white space. Then it compares letters and digits alone, so that it finds
// a number in groups. It also finds base64 and hexadecimal digits, and what it does not decode
// because it is no escape: see listSpellings and listViews.
//
// Its time is linear in the length of the text, with a bound on the work: see Replace. A Finder is
// safe for concurrent use.
type Finder struct {
	anywhere []needle        // forms of values that are found inside words, too
	words    []needle        // forms of short values, which are found only as whole words
	parts    map[string]bool // see Options.HidesParts
	isFull   bool            // the values are too many or too long to look for
}

// Options select the values and forms that a Finder finds.
type Options struct {
	// Shortest is the number of characters from which a value is found inside words, too.
	Shortest int
	// FindsWords is true if a shorter value is found as a whole word. Otherwise it is ignored.
	FindsWords bool
	// PartsOf are values of which not even minPart bytes in a row may stay in a text.
	PartsOf []string
	// Pairs are texts such as name=value, of which only the value is replaced, whatever its length.
	Pairs []string
	// MaxBytes bounds the values together. If they are longer, Replace shows no text. 0 = no bound,
	// for values that no sender of messages chooses.
	MaxBytes int
}

const (
	// maxValues bounds the number of values if Options.MaxBytes bounds their length.
	maxValues = 256
	// maxEncoded is the length in bytes up to which a value is found in base64 and in hexadecimal
	// digits if Options.MaxBytes is 0. A longer one is a token or a key, which no program encodes
	// once more.
	maxEncoded = 256
	// minPart is the number of bytes of a value that must not stay in a text. Shorter parts occur
	// by chance.
	minPart = 8
	// minBeginning is the number of bytes from which the beginning of a value is found at the end
	// of a text that was cut.
	minBeginning = 4
	// minDigits is the number of digits from which a value is found in groups of digits.
	minDigits = 6
	// maxSeparators bounds the characters between two groups of digits, such as ") ".
	maxSeparators = 3
	// maxRest is the number of bytes behind the last character of an unpacked text that was cut:
	// the ellipsis, and letters that are too few for a byte.
	maxRest = 8
	// maxCompared bounds the comparisons for each byte of a text. Only a text that was made to cost
	// time needs more.
	maxCompared = 64
)

// needle is a form of a value.
type needle struct {
	folded
	how      folding
	isLoose  bool // separators can stand anywhere, as in base64 with line breaks
	isNumber bool // the value has at least minDigits digits, so separators can stand beside digits
	kept     int  // bytes at the beginning that are not replaced
}

// NewFinder returns a Finder for values. It ignores empty values.
func NewFinder(values []string, o Options) *Finder {
	f := &Finder{parts: map[string]bool{}}
	known, size := map[string]bool{"": true}, 0
	for _, value := range values {
		value = strings.TrimSpace(value)
		if known[value] {
			continue
		}

		known[value] = true
		if size += len(value); o.MaxBytes > 0 && (size > o.MaxBytes || len(known) > maxValues) {
			f.isFull = true
			return f
		}

		f.addValue(value, o)
	}

	for _, pair := range o.Pairs {
		name, _, _ := strings.Cut(pair, "=")
		n := needle{folded: foldChars(readChars(pair), withPunctuation), how: withPunctuation}
		n.kept = len(foldChars(readChars(name+"="), withPunctuation).text)
		f.anywhere = append(f.anywhere, n)
	}

	f.addParts(o.PartsOf)
	f.anywhere, f.words = compactNeedles(f.anywhere), compactNeedles(f.words)

	return f
}

// IsEmpty reports whether the Finder finds nothing.
func (f *Finder) IsEmpty() bool { return !f.isFull && len(f.anywhere)+len(f.words) == 0 }

// addValue adds the forms of a value. A value that looks like an escape can stand in a text decoded
// or not, so it has a form for each level.
func (f *Finder) addValue(value string, o Options) {
	levels, _ := decodeLevels(value)

	// forms of HTML write a space so
	if plus := strings.ReplaceAll(value, " ", "+"); plus != value {
		levels = append(levels, readChars(plus))
	}

	for _, spelling := range listSpellings(value) {
		levels = append(levels, readChars(spelling))
	}

	for _, chars := range levels {
		n := needle{folded: foldChars(chars, withPunctuation), how: withPunctuation}
		if utf8.RuneCountInString(value) < o.Shortest ||
			utf8.RuneCountInString(n.text) < min(o.Shortest, minBeginning) {
			if o.FindsWords && n.text != "" {
				f.words = append(f.words, n)
			}
			continue
		}

		f.anywhere = append(f.anywhere, n)
		f.addWordForms(n, foldChars(chars, wordsOnly), o)
	}

	if utf8.RuneCountInString(value) >= o.Shortest && (o.MaxBytes > 0 || len(value) <= maxEncoded) {
		f.addEncodings(value)
		f.addEncodings(encodeUTF16(value))
	}
}

// addWordForms adds the form of a value's letters and digits, and the form of its digits. A value
// that consists mostly of other characters has no such form, because the rest of it would stand in
// many texts by chance.
func (f *Finder) addWordForms(whole needle, words folded, o Options) {
	digits := 0
	for i := range len(words.text) {
		if isDigit(words.text[i]) {
			digits++
		}
	}

	isNumber := digits >= minDigits
	count, all := utf8.RuneCountInString(words.text), utf8.RuneCountInString(whole.text)
	if count >= o.Shortest && count*5 >= all*3 {
		f.anywhere = append(f.anywhere, needle{folded: words, how: wordsOnly, isNumber: isNumber})
	}

	if !isNumber || digits == len(words.text) && count*5 >= all*3 {
		return
	}

	alone := needle{how: wordsOnly, isNumber: true}
	var text []byte
	for i := range len(words.text) {
		if isDigit(words.text[i]) {
			text = append(text, words.text[i])
			alone.gaps = append(alone.gaps, 0)
		}
	}

	alone.text = string(text)
	f.anywhere = append(f.anywhere, alone)
}

// minEncoded is the length from which base64 and hexadecimal digits are found. Shorter ones stand
// in texts by chance.
const minEncoded = 8

// addEncodings adds a value in hexadecimal digits and in base64. In base64, a value has three
// forms, because it can begin at each of three places in a group of bytes. Without punctuation, the
// two alphabets of base64 are the same.
func (f *Finder) addEncodings(value string) {
	forms := []string{hex.EncodeToString([]byte(value)),
		base64.RawStdEncoding.EncodeToString([]byte(value))}
	for shift := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), value...))
		// without the characters that depend on the neighbours
		begin, end := (shift*8+5)/6, (shift+len(value))*8/6
		if begin < end {
			forms = append(forms, encoded[begin:end])
		}
	}

	for _, form := range forms {
		if n := foldChars(readChars(form), wordsOnly); len(n.text) >= minEncoded {
			f.anywhere = append(f.anywhere, needle{folded: n, how: wordsOnly, isLoose: true})
		}
	}
}

func (f *Finder) addParts(values []string) {
	known := map[string]bool{}
	for _, value := range values {
		if known[value] {
			continue
		}

		known[value] = true
		levels, _ := decodeLevels(value)
		text := foldChars(levels[len(levels)-1], wordsOnly).text
		for end := minPart; end <= len(text); end++ {
			f.parts[text[end-minPart:end]] = true
		}
	}
}

func compactNeedles(needles []needle) []needle {
	slices.SortStableFunc(needles, func(a, b needle) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.how, b.how),
			slices.Compare(a.gaps, b.gaps), cmp.Compare(a.kept, b.kept))
	})

	return slices.CompactFunc(needles, func(a, b needle) bool {
		return a.text == b.text && a.how == b.how && a.isLoose == b.isLoose && a.kept == b.kept &&
			slices.Equal(a.gaps, b.gaps)
	})
}

// Replace returns a text with the mark in place of each value. If the text ends with an ellipsis,
// Replace also replaces the beginning of a value at its end.
//
// The result isSafe is false if a part of a value may remain, so that the caller must not show any
// of the text: the values are too many, the text has minPart bytes of one of Options.PartsOf, it is
// escaped too often, or it costs too much time.
func (f *Finder) Replace(text, mark string) (replaced string, isSafe bool) {
	switch {
	case text == "" || f.IsEmpty():
		return text, true
	case f.isFull:
		return "", false
	}

	levels, isComplete := decodeLevels(text)
	if !isComplete {
		return "", false
	}

	s := &search{finder: f, text: text, ends: findCuts(text), hidden: make([]bool, len(text)),
		budget: maxCompared * (len(text) + 1<<10)}
	readings := listViews(levels)
	for _, chars := range readings {
		s.searchLevel(chars, true)
	}

	unpacked, isComplete := unpackAll(readings)
	if !isComplete {
		return "", false
	}

	for _, chars := range unpacked {
		s.searchLevel(chars, int(chars[len(chars)-1].to)+maxRest >= len(text))
	}

	if s.budget < 0 || s.hasPart() {
		return "", false
	}

	return s.replaceHidden(mark), true
}

// search looks for the values of a Finder in one text.
type search struct {
	finder *Finder
	text   string
	ends   []int  // offsets at which a text that was cut may end; see findCuts
	hidden []bool // for each byte of text, whether it is replaced
	levels []level
	budget int // comparisons that are left
}

// level is a decoded text with one of its folded forms.
type level struct {
	chars []char
	folded
}

// searchLevel hides the values in one level of the text. If the level ends where the text ends,
// endsText is true, and searchLevel also hides the beginning of a value there.
func (s *search) searchLevel(chars []char, endsText bool) {
	for _, how := range []folding{withPunctuation, wordsOnly} {
		l := level{chars, foldChars(chars, how)}
		for i := range s.finder.anywhere {
			if n := &s.finder.anywhere[i]; n.how == how {
				s.findNeedle(&l, n, false)
				if endsText {
					s.findBeginning(&l, n)
				}
			}
		}

		for i := range s.finder.words {
			if n := &s.finder.words[i]; n.how == how {
				s.findNeedle(&l, n, true)
			}
		}

		if how == wordsOnly {
			s.levels = append(s.levels, l)
		}
	}
}

func (s *search) findNeedle(l *level, n *needle, isWord bool) {
	for at := 0; s.budget >= 0; {
		next := strings.Index(l.text[at:], n.text)
		if next < 0 {
			return
		}

		at += next
		end := at + len(n.text)
		s.budget -= 1 + len(n.text)/maxCompared // strings.Index has compared the bytes
		if !s.fits(l, n, at, len(n.text)) || isWord && !l.isWholeWord(at, end) {
			at++
			continue
		}

		if at+n.kept < end {
			s.hide(l.chars[l.sources[at+n.kept]].from, l.endOf(end))
		}

		at = end
	}
}

// fits reports whether the first "length" bytes of a needle are at an offset of the folded text,
// although other characters stand between them. The caller has compared the bytes.
func (s *search) fits(l *level, n *needle, at, length int) bool {
	for i := 1; i < length; i++ {
		s.budget--
		gap := l.gaps[at+i]
		isBesideDigit := isDigit(n.text[i-1]) || isDigit(n.text[i])
		switch {
		case gap == 0:
		case n.how == withPunctuation && n.gaps[i] > 0:
		case n.gaps[i] > 0 && int(gap) <= int(n.gaps[i])+maxSeparators:
		case n.isLoose && gap <= maxSeparators:
		case n.isNumber && isBesideDigit && gap <= maxSeparators:
		default:
			return false
		}
	}

	return s.budget >= 0
}

// isWholeWord reports whether neither a letter nor a digit stands directly before or after a part
// of the folded text.
func (l *level) isWholeWord(at, end int) bool {
	before, after := int(l.sources[at])-1, int(l.sources[end-1])+1
	return (before < 0 || !isWordRune(l.chars[before].r)) &&
		(after == len(l.chars) || !isWordRune(l.chars[after].r))
}

// endOf returns the offset in the original text of the end of the folded text's first "end" bytes,
// with the accents that follow.
func (l *level) endOf(end int) int32 {
	last := int(l.sources[end-1])
	for last+1 < len(l.chars) && l.chars[last+1].r >= utf8.RuneSelf &&
		isIgnored(l.chars[last+1].r) {
		last++
	}
	return l.chars[last].to
}

func (s *search) hide(from, to int32) {
	for i := from; i < to; i++ {
		s.hidden[i] = true
	}
}

// partialEscape matches the beginning of an escape at the end of a text that was cut.
var partialEscape = regexp.MustCompile(`(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9a-fA-F]?|` +
	`&#?[0-9a-zA-Z]{0,10}|\x{FFFD}+)$`)

// findCuts returns the offsets at which a text ends if it was cut: before its ellipsis, and before
// an escape that was cut, too. If the text does not end with an ellipsis, there are none.
func findCuts(text string) []int {
	rest := strings.TrimSuffix(strings.TrimSuffix(text, "…"), "...")
	if len(rest) == len(text) {
		return nil
	}

	ends := []int{len(rest)}
	if found := partialEscape.FindStringIndex(rest); found != nil {
		ends = append(ends, found[0])
	}

	return ends
}

// findBeginning hides the beginning of a value at the end of a text that was cut.
func (s *search) findBeginning(l *level, n *needle) {
	for _, cut := range s.ends {
		end := len(l.text)
		for end > 0 && int(l.chars[l.sources[end-1]].to) > cut {
			end--
		}

		length := longestBorder(n.text, l.text[max(0, end-len(n.text)):end])
		s.budget -= len(n.text) / maxCompared
		for ; length >= minBeginning; length = longestBorder(n.text, n.text[1:length]) {
			if s.fits(l, n, end-length, length) {
				if length > n.kept {
					s.hide(l.chars[l.sources[end-length+n.kept]].from, int32(s.ends[0]))
				}
				break
			}
		}
	}
}

// longestBorder returns the length of the longest beginning of a form that is the end of a text.
// Its time is linear in the length of both (Knuth, Morris, Pratt).
func longestBorder(form, text string) int {
	// for each length, the longest border of the form's beginning
	borders := make([]int, len(form)+1)
	length := 0
	for i := 1; i < len(form); i++ {
		for length > 0 && form[i] != form[length] {
			length = borders[length]
		}

		if form[i] == form[length] {
			length++
		}

		borders[i+1] = length
	}

	length = 0
	for i := range len(text) {
		for length > 0 && (length == len(form) || text[i] != form[length]) {
			length = borders[length]
		}
		if length < len(form) && text[i] == form[length] {
			length++
		}
	}

	return length
}

// hasPart reports whether minPart bytes in a row of one of Options.PartsOf are left in the text.
func (s *search) hasPart() bool {
	if len(s.finder.parts) == 0 {
		return false
	}

	for i := range s.levels {
		l := &s.levels[i]
		run := 0 // bytes in a row that are not hidden
		for end := 1; end <= len(l.text); end++ {
			switch c := l.chars[l.sources[end-1]]; {
			case s.hidden[c.from]:
				run = 0
				continue
			case l.gaps[end-1] > maxSeparators:
				run = 0
			}

			if run++; run >= minPart && s.finder.parts[l.text[end-minPart:end]] {
				return true
			}
		}
	}

	return false
}

// replaceHidden returns the text with the mark in place of each sequence of hidden bytes.
func (s *search) replaceHidden(mark string) string {
	var b strings.Builder
	for at := 0; at < len(s.text); {
		end := at + 1
		for end < len(s.text) && s.hidden[end] == s.hidden[at] {
			end++
		}

		if s.hidden[at] {
			b.WriteString(mark)
		} else {
			b.WriteString(s.text[at:end])
		}

		at = end
	}

	return b.String()
}
