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
	normalised = unwrap(reason)
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

var (
	// jsonBegins is where a CMS's answer in JSON begins, behind what we say of it.
	jsonBegins = regexp.MustCompile(`(?:^|: )[{\[]\s*["{\[]`)
	jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|$)`) // the last one may be cut off
	jsonName   = regexp.MustCompile(`^"[A-Za-z_][\w.-]*"$`)
	jsonEscape = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\/`, "/", `\n`, " ", `\r`, " ", `\t`, " ")
	// telling names have a value that says what failed, not of what.
	telling = regexp.MustCompile(`(?i)^"[\w.-]*(?:error|message|msg|title|detail|description|reason|code|type|fault|cause)s?"$`)
)

// unwrap takes the words out of an answer in JSON: there quotes stand around everything, and
// would make one kind of all failures. Names are kept, and of the texts those that have
// several words, or a name that says what failed.
func unwrap(reason string) string {
	at := jsonBegins.FindStringIndex(reason)
	if at == nil {
		return reason
	}
	var b strings.Builder
	b.WriteString(reason[:at[0]])
	rest, name := reason[at[0]:], ""
	for {
		is := jsonString.FindStringIndex(rest)
		if is == nil {
			return b.String() + rest
		}
		text := rest[is[0]:is[1]]
		b.WriteString(rest[:is[0]])
		rest = rest[is[1]:]
		inner := jsonEscape.Replace(strings.Trim(text, `"`))
		named := strings.HasPrefix(strings.TrimLeft(rest, " "), ":")
		if named {
			name = text
		}
		switch {
		case named && jsonName.MatchString(text):
			b.WriteString(inner)
		case !named && (strings.Contains(inner, " ") || telling.MatchString(name)):
			b.WriteString(inner)
		default:
			b.WriteString("<text>")
		}
	}
}
