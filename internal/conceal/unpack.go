package conceal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxLayers is the number of times that bytes in letters and digits are unpacked, such as
	// base64 of base64. A text with more layers may hide a value, so callers must not show it.
	maxLayers = 3
	// minPacked is the number of characters from which a sequence of letters and digits is
	// unpacked. Shorter ones are words.
	minPacked = 8
	// minUnpacked is the number of bytes from which text is recognized in unpacked bytes. Shorter
	// text occurs by chance.
	minUnpacked = 6
	// maxUnpacked bounds the characters that are unpacked from a text, as a multiple of its length.
	// Only a text that was made to cost time has more.
	maxUnpacked = 16
	// packedLine is the number of characters from which a line of letters and digits goes on in the
	// next line.
	packedLine = 60
	// pieceStart stands before each unpacked piece of a text, so that no value is found across two
	// pieces.
	pieceStart = "||||"
)

// alphabet is a way to write bytes in letters and digits, such as base64.
type alphabet struct {
	values [utf8.RuneSelf]int8 // by character; -1 = the alphabet lacks it
	bits   int                 // that a character stands for
	// the number of characters after which bytes and characters end together
	group int
}

// base64Alphabet has the characters of both forms of base64.
var base64Alphabet = newAlphabet(6, 4,
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").add('-', 62).add('_', 63)

// alphabets are those that unpackChars knows: base16, the two of base32, and base64.
var alphabets = []*alphabet{
	newAlphabet(4, 2, "0123456789abcdef").addUpperCase(),
	newAlphabet(5, 8, "abcdefghijklmnopqrstuvwxyz234567").addUpperCase(),
	newAlphabet(5, 8, "0123456789abcdefghijklmnopqrstuv").addUpperCase(),
	base64Alphabet,
}

func newAlphabet(bits, group int, characters string) *alphabet {
	a := &alphabet{bits: bits, group: group}
	for i := range a.values {
		a.values[i] = -1
	}

	for i := range len(characters) {
		a.add(rune(characters[i]), int8(i))
	}

	return a
}

func (a *alphabet) add(r rune, value int8) *alphabet {
	a.values[r] = value
	return a
}

// addUpperCase adds the upper-case letters of an alphabet of lower-case letters.
func (a *alphabet) addUpperCase() *alphabet {
	for r := 'a'; r <= 'z'; r++ {
		if value := a.values[r]; value >= 0 {
			a.add(r-'a'+'A', value)
		}
	}
	return a
}

// valueOf returns the bits of a character, or -1 if the alphabet lacks it.
func (a *alphabet) valueOf(r rune) int8 {
	if r < 0 || r >= utf8.RuneSelf {
		return -1
	}
	return a.values[r]
}

// unpackChars returns the texts in the bytes for which letters and digits of a text stand, in each
// alphabet. The bytes can begin at any character, because other letters can stand directly before
// them.
func unpackChars(chars []char) (texts [][]char) {
	for _, a := range alphabets {
		tokens := a.readTokens(chars)
		for skip := range a.group {
			var text []char
			for _, token := range tokens {
				if token = token[min(skip, len(token)):]; len(token)*a.bits/8 >= minUnpacked {
					text = appendText(text, a.unpack(token), skip == 0)
				}
			}

			if len(text) > 0 {
				texts = append(texts, text)
			}
		}
	}

	return texts
}

// readTokens returns the sequences of the alphabet's characters that are long enough to be
// unpacked.
func (a *alphabet) readTokens(chars []char) (tokens [][]char) {
	for at := 0; at < len(chars); {
		token, next := a.readToken(chars, at)
		if len(token) >= minPacked {
			tokens = append(tokens, token)
		}
		at = next
	}

	return tokens
}

// readToken returns the sequence of the alphabet's characters that begins at an index, and the
// index behind it. After a long line the sequence goes on in the next line, as in mail.
func (a *alphabet) readToken(chars []char, at int) (token []char, next int) {
	token = a.readLine(chars[at:])
	at += len(token)
	for isLong := len(token) >= packedLine; isLong; {
		begin := at
		for begin < len(chars) && (chars[begin].r == '\r' || chars[begin].r == '\n') {
			begin++
		}

		if begin == at {
			break
		}

		line := a.readLine(chars[begin:])
		token, isLong = append(token, line...), len(line) >= packedLine
		at = begin + len(line)
	}

	return token, at + 1
}

// readLine returns the characters of the alphabet with which a text begins. An append copies them.
func (a *alphabet) readLine(chars []char) []char {
	end := 0
	for end < len(chars) && a.valueOf(chars[end].r) >= 0 {
		end++
	}
	return chars[:end:end]
}

// unpack returns the bytes for which the characters of a token stand.
func (a *alphabet) unpack(token []char) []char {
	unpacked := make([]char, 0, len(token)*a.bits/8)
	bits, count, from := 0, 0, 0
	for i, c := range token {
		if count == 0 {
			from = i
		}

		bits = bits<<a.bits | int(a.valueOf(c.r))
		if count += a.bits; count < 8 {
			continue
		}

		count -= 8
		unpacked = append(unpacked, char{rune(bits >> count), token[from].from, c.to})
		bits &= 1<<count - 1
		from = i // its other bits belong to the next byte
	}

	return unpacked
}

// appendText appends the sequences of text in bytes, with pieceStart before each. Text is UTF-8, or
// ISO 8859-1 if takesLatin is true.
func appendText(text, bytes []char, takesLatin bool) []char {
	begin := 0 // of the sequence that is being read
	for at := 0; at <= len(bytes); {
		size, isText := 1, false
		if at < len(bytes) {
			var r rune
			r, size = readBytes(bytes[at:])
			isLatin := size == 1 && r >= utf8.RuneSelf
			isText = unicode.IsPrint(r) && (takesLatin || !isLatin) ||
				unicode.IsSpace(r) && !isLatin
		}

		if !isText {
			if at-begin >= minUnpacked {
				text = appendPiece(text, bytes[begin:at])
			}
			begin = at + size
		}

		at += size
	}

	return text
}

func appendPiece(text, bytes []char) []char {
	for _, r := range pieceStart {
		text = append(text, char{r, bytes[0].from, bytes[0].from})
	}

	for len(bytes) > 0 {
		r, size := readBytes(bytes)
		text = append(text, char{r, bytes[0].from, bytes[size-1].to})
		bytes = bytes[size:]
	}

	return text
}

// unpackAll returns the levels and views of the texts that are packed in a reading of a text, and
// of those that are packed in them. If texts are packed more than maxLayers times, or too many,
// isComplete is false.
func unpackAll(readings [][]char) (unpacked [][]char, isComplete bool) {
	left := maxUnpacked*len(readings[0]) + 1<<10
	known := map[string]bool{} // the readings of a text have many pieces in common
	for layer := 0; ; layer++ {
		var next [][]char
		for _, chars := range readings {
			for _, text := range unpackChars(chars) {
				name := nameText(text)
				if known[name] {
					continue
				}

				known[name] = true
				levels, isComplete := decodeChars(text, maxDecodings)
				levels = listViews(levels)
				if left -= countChars(levels); left < 0 || !isComplete {
					return nil, false
				}

				next = append(next, levels...)
			}
		}

		switch {
		case len(next) == 0:
			return unpacked, true
		case layer == maxLayers:
			return nil, false
		}

		unpacked, readings = append(unpacked, next...), next
	}
}

func countChars(readings [][]char) (count int) {
	for _, chars := range readings {
		count += len(chars)
	}
	return count
}

// nameText returns a text that differs for texts with other characters or at other places.
func nameText(chars []char) string {
	var b strings.Builder
	for _, c := range chars {
		b.WriteRune(c.r)
	}
	return fmt.Sprint(chars[0].from, chars[len(chars)-1].to, b.String())
}
