package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// normalisedMax is how many characters of a reason tell one kind of failure from another.
const normalisedMax = 200

// What differs between two failures of one kind, in the order in which it is replaced.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»`), "<text>"},
	{regexp.MustCompile(`(^|[\s(\[=:,])'[^']*'`), "$1<text>"}, // an apostrophe inside a word quotes nothing
	{regexp.MustCompile(`(?i)\b(?:0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]{7,}|[0-9a-f]{7,}[0-9][0-9a-f]*)\b`), "<id>"},
	{regexp.MustCompile(`[0-9]+(?:[.,:][0-9]+)*`), "<n>"},
}

// Fingerprint names the kind of a failure: reasons that differ in numbers, ids and quoted
// text alone have the same one, per contract and status of the CMS. normalised is the
// reason without those.
func Fingerprint(contract string, cmsStatus int, reason string) (fingerprint, normalised string) {
	normalised = reason
	for _, v := range volatile {
		normalised = v.pattern.ReplaceAllString(normalised, v.instead)
	}
	normalised = strings.Join(strings.Fields(normalised), " ")
	if r := []rune(normalised); len(r) > normalisedMax {
		normalised = string(r[:normalisedMax])
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{contract, strconv.Itoa(cmsStatus), normalised}, "\n")))
	return hex.EncodeToString(sum[:6]), normalised
}
