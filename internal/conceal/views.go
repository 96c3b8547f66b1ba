package conceal

// maxTag is the number of characters of the longest tag that is left out of a text.
const maxTag = 200

// maxViewed is the number of levels of a text whose views are searched, and of the levels of a view.
const maxViewed = 3

// listViews returns the levels of a text, and the levels of its views: the ways to read it that are not
// escapes. One is without tags, as a search marks the words that it has found; the other has
// quoted-printable undone, as mail writes it. They are apart from the levels, because "size=1280" would
// lose its text if it was taken for quoted-printable.
func listViews(levels [][]char) (views [][]char) {
	views = levels
	for _, chars := range levels[:min(len(levels), maxViewed)] {
		for _, view := range [][]char{removeTags(chars), undoQuotedPrintable(chars)} {
			if view != nil {
				decoded, _ := decodeChars(view, maxViewed)
				views = append(views, decoded...)
			}
		}
	}
	return views
}

// removeTags returns the text without tags, or nil if it has none.
func removeTags(chars []char) (bare []char) {
	for at := 0; at < len(chars); {
		if length := tagLength(chars[at:]); length > 0 {
			if bare == nil {
				bare = append(make([]char, 0, len(chars)), chars[:at]...)
			}
			at += length
			continue
		}
		if bare != nil {
			bare = append(bare, chars[at])
		}
		at++
	}
	return bare
}

// tagLength returns the length of the tag at the beginning of a text, or 0 if there is none.
func tagLength(chars []char) int {
	if len(chars) < 3 || chars[0].r != '<' || chars[1].r != '/' && !isASCIILetter(chars[1].r) {
		return 0
	}
	for i := 2; i < min(len(chars), maxTag); i++ {
		switch chars[i].r {
		case '<':
			return 0
		case '>':
			return i + 1
		}
	}
	return 0
}

func isASCIILetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// undoQuotedPrintable returns the text with quoted-printable undone, or nil if it has none. It undoes
// two hexadecimal digits behind an equals sign, and removes an equals sign at the end of a line.
func undoQuotedPrintable(chars []char) []char {
	d := decoder{in: chars}
	for at := 0; at < len(chars); {
		if used := d.decodeEquals(at); used > 0 {
			d.changed = true
			at += used
			continue
		}
		d.addChar(chars[at])
		at++
	}
	d.flushBytes()
	if !d.changed {
		return nil
	}
	return d.out
}

// decodeEquals decodes =FC, and the end of a line that quoted-printable has broken.
func (d *decoder) decodeEquals(at int) int {
	if d.in[at].r != '=' {
		return 0
	}
	switch next := d.peek(at + 1); {
	case next == '\n':
		return 2
	case next == '\r' && d.peek(at+2) == '\n':
		return 3
	}
	if value, ok := d.readNumber(at+1, 2, 16); ok {
		return d.addByte(value, at, 3)
	}
	return 0
}
