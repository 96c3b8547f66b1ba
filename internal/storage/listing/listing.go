// Package listing walks over long listings of blobs or files, in several calls.
package listing

import (
	"strconv"
	"strings"
)

// Walk visits the pages of several listings, one listing after the other, from a marker on; "" =
// from the beginning. Each listing has the names with one of the prefixes. The function visit
// handles the page at a listing's own marker, and returns the marker of the listing's next page; ""
// = the listing is over.
//
// If visit fails, Walk returns the marker of that page with the error, so that a later call
// continues there. Otherwise isDone is true.
func Walk(prefixes []string, marker string,
	visit func(prefix, marker string) (next string, err error)) (
	next string, isDone bool, err error) {
	number, at := parse(marker)
	for ; number < len(prefixes); number, at = number+1, "" {
		for {
			after, err := visit(prefixes[number], at)
			if err != nil {
				return format(number, at), false, err
			}

			if at = after; at == "" {
				break
			}
		}
	}

	return "", true, nil
}

func format(number int, marker string) string {
	if number == 0 && marker == "" {
		return ""
	}
	return strconv.Itoa(number) + ":" + marker
}

// parse returns the number of the listing and the listing's marker. For a text that is no marker it
// returns the beginning.
func parse(text string) (number int, marker string) {
	first, marker, _ := strings.Cut(text, ":")
	number, err := strconv.Atoi(first)
	if err != nil || number < 0 {
		return 0, ""
	}
	return number, marker
}
