package contract

import (
	"strings"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/ianaindex"
)

// This file has the names of the encodings. A name that is neither in IANA's list nor here is
// refused, although a browser could know it: two programs read the same name in two ways.

// moreNames has the names that IANA's list lacks, or that golang.org/x/text does not map. They are
// those of Python, Java, .NET, ICU and browsers. A key has letters and digits alone: see squeeze.
//
// A smaller encoding has the name of the larger one that contains it: GB2312 is a part of GBK, the
// Korean standard of 1987 a part of EUC-KR, Windows-31J the whole of what is called Shift_JIS, and
// TIS-620 a part of Windows-874. All characters of the smaller encoding have the same bytes there.
var moreNames = listNames(map[string]string{
	utf8Name: "utf8 utf8sig unicode11utf8 cp65001",
	// These names leave the order of the bytes to the byte order mark.
	utf16Name: "utf16 unicode ucs2 csunicode iso10646ucs2",
	utf16LE:   "utf16le xutf16le unicodelittle",
	utf16BE:   "utf16be xutf16be unicodebig unicodefffe",

	ascii:         "ascii",
	latin1:        "latin latin1 isolatin1 iso8859 cp28591",
	"iso-8859-6":  "iso88596e iso88596i",
	"iso-8859-8":  "iso88598e iso88598i logical visual",
	"iso-8859-13": "latin7 l7",
	"iso-8859-15": "latin9 isolatin9 l9",
	"windows-874": "cp874 ms874 xwindows874 tis620 iso885911 xiso885911 isoir166",
	"koi8-r":      "koi koi8 koi8r",
	"koi8-u":      "koi8u koi8ru",
	"macintosh":   "mac macroman xmacroman",
	"ibm00858":    "cp858 ibm858 858",
	"shift_jis": "shiftjis sjis xsjis windows31j cswindows31j mskanji ms932 cp932 windows932 " +
		"xmscp932",
	"euc-jp":  "eucjp xeucjp ujis cp51932",
	iso2022JP: "iso2022jp csiso2022jp",
	"gbk": "gbk xgbk cp936 ms936 windows936 gb2312 csgb2312 gb23121980 gb231280 csiso58gb231280 " +
		"chinese euccn xeuccn xmswin936",
	"gb18030": "gb18030 gb180302000",
	"big5": "big5 xxbig5 big5eten cnbig5 cp950 ms950 windows950 xwindows950 big5hkscs " +
		"csbig5hkscs",
	"euc-kr": "euckr ksc5601 ksc56011987 ksc56011989 csksc56011987 ksx1001 isoir149 korean " +
		"cp949 ms949 windows949 xwindows949 uhc",
})

// listNames returns the canonical name of each name.
func listNames(byEncoding map[string]string) map[string]string {
	all := map[string]string{}
	for canonical, names := range byEncoding {
		for _, name := range strings.Fields(names) {
			all[name] = canonical
		}
	}

	return all
}

// squeeze returns the letters and digits of a name, because programs write the marks between them
// in several ways: iso-8859-1, ISO8859_1, iso_8859_1.
func squeeze(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, name)
}

// numbered are encodings with numbers, by the beginnings of their squeezed names.
var numbered = []struct{ start, canonical string }{
	{"windows125", "windows-125"}, {"xwindows125", "windows-125"}, {"cp125", "windows-125"},
	{"xcp125", "windows-125"}, {"ms125", "windows-125"}, {"win125", "windows-125"},
	{"iso8859", "iso-8859-"}, {"8859", "iso-8859-"}, {"cp", "cp"}, {"ibm", "ibm"},
}

// encodingName returns the canonical name of an encoding, or false if Weir does not read it.
func encodingName(given string) (name string, isKnown bool) {
	given = strings.ToLower(given)
	if name, isKnown = nameInTables(given); isKnown {
		return name, true
	}

	if name, isKnown = nameInTables(strings.ReplaceAll(given, "_", "-")); isKnown {
		return name, true
	}

	squeezed := squeeze(given)
	if canonical, ok := moreNames[squeezed]; ok {
		return canonical, true
	}

	if name, isKnown = nameInTables(squeezed); isKnown {
		return name, true
	}

	for _, n := range numbered {
		if number, ok := strings.CutPrefix(squeezed, n.start); ok && isDigits(number) {
			if name, isKnown = nameInTables(n.canonical + number); isKnown {
				return name, true
			}
		}
	}

	return "", false
}

// isDigits reports whether a text has one digit or more, and nothing else.
func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// nameInTables returns the canonical name of an encoding by its own name, or by a name of IANA's
// list.
func nameInTables(given string) (name string, isKnown bool) {
	if own[given] != nil || given == utf16Name || given == iso2022JP || multiByte[given] != nil {
		return given, true
	}

	found, err := ianaindex.MIME.Encoding(given)
	if err != nil || found == nil {
		return "", false
	}

	if name, err = ianaindex.MIME.Name(found); err != nil {
		return "", false
	}

	name = strings.ToLower(name)
	if own[name] != nil || name == iso2022JP || multiByte[name] != nil {
		return name, true
	}

	// Others, such as EBCDIC, have no declaration in ASCII.
	page, isPage := found.(*charmap.Charmap)

	return name, isPage && page.DecodeByte('<') == '<'
}
