package filing

import (
	"net/http"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// optionHeader is a header that changes how a submission is filed. If a way in ignored a misspelt
// one, an embargoed message would be delivered at once, and a repeat would become a second message.
type optionHeader struct {
	name        string
	full, short string // the name as foldName returns it, with and without Weir-
	allowed     int    // letters by which a misspelt short name can differ
}

var optionHeaders = []optionHeader{
	// A quarter of the letters: Idempotency-Id and Idempotence-Key are mistakes, too.
	{"Idempotency-Key", "idempotencykey", "idempotencykey", 3},
	// One letter: other software has no header so near to these. It has some near to Callback, so
	// there no letter differs.
	{"Weir-Deliver-At", "weirdeliverat", "deliverat", 1},
	{"Weir-Deliver-After", "weirdeliverafter", "deliverafter", 1},
	{"Weir-Callback", "weircallback", "callback", 0},
}

// CheckNames refuses a header that is meant for Weir, but is not in known: a header that begins
// with Weir- or Weir_, or one that resembles a header of optionHeaders, such as Idempotency_Key or
// Deliver-At. The names in h must be canonical. The argument begin begins the sentence about such a
// name, for example "a batch has no header ". The error is of kind Malformed.
func CheckNames(begin string, h http.Header, known ...string) error {
	for name := range h {
		isOurs := strings.HasPrefix(name, "Weir-") || strings.HasPrefix(name, "Weir_")
		if slices.Contains(known, name) || !isOurs && findMeant(name) == "" {
			continue
		}
		return unknownNameError(begin, name, findMeant(name), known)
	}

	return nil
}

// findMeant returns the header of optionHeaders for which a name is probably a mistake; "" = for
// none. A name of other software resembles none: the only allowed differences are case, hyphens,
// underscores, X- in front, a missing Weir-, and few letters.
func findMeant(name string) string {
	given := foldName(name)
	if strings.HasPrefix(name, "X-") || strings.HasPrefix(name, "X_") {
		given = given[1:]
	}

	for _, h := range optionHeaders {
		if isNear(given, h.full, max(h.allowed, 1)) || isNear(given, h.short, h.allowed) {
			return h.name
		}
	}

	return ""
}

// isNear reports whether at most "allowed" letters differ. Each post passes here with all its
// headers, so isNear first compares how often each letter occurs: one change of a letter changes at
// most two of these counts.
func isNear(a, b string, allowed int) bool {
	if max(len(a)-len(b), len(b)-len(a)) > allowed {
		return false
	}

	var counts [256]int8
	for i := range len(a) {
		counts[a[i]]++
	}

	for i := range len(b) {
		counts[b[i]]--
	}

	differences := 0
	for _, c := range counts['a' : 'z'+1] {
		differences += int(max(c, -c))
	}

	return differences <= 2*allowed && levenshtein.ComputeDistance(a, b) <= allowed
}

// UnknownNameError returns an error of kind Malformed for a name that is not in known. The argument
// kind says where the name was used, for example "header". The message of the error suggests the
// most similar known name. If no known name is similar, the message lists all known names.
func UnknownNameError(kind, name string, known []string) error {
	return unknownNameError("there is no "+kind+" ", name, "", known)
}

// unknownNameError is UnknownNameError with the beginning of the message. If the name meant is
// known, the message suggests it.
func unknownNameError(begin, name, meant string, known []string) error {
	nearest, distance := "", len(name)
	for _, k := range known {
		// If more than a third of the letters differ, the name is not taken for a misspelt k.
		if d := levenshtein.ComputeDistance(foldName(name), foldName(k)); d < distance &&
			d <= len(k)/3 {
			nearest, distance = k, d
		}
	}

	if meant != "" && slices.Contains(known, meant) {
		nearest = meant
	}

	message := begin + truncateName(name)
	switch {
	case nearest != "":
		message += "; did you mean " + nearest + "?"
	case len(known) > 0:
		message += "; possible are " + strings.Join(known, ", ")
	}

	return MalformedError(message)
}

// foldName removes case, hyphens and underscores from a name, so that Weir-DeliverAt and
// weir_deliver_at equal Weir-Deliver-At.
func foldName(name string) string {
	folded := make([]byte, 0, 64) // usually on the stack
	for i := range len(name) {
		if name[i] != '-' && name[i] != '_' {
			folded = append(folded, name[i])
		}
	}
	return strings.ToLower(string(folded))
}

// truncateName shortens a long name, because the error's message repeats the name.
func truncateName(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
