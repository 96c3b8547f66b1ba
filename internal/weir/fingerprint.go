package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// maxNormalised limits a normalised reason, in characters.
const maxNormalised = 200

// variableParts match the parts of a reason that differ between failures of the same kind.
// Fingerprint applies the patterns in this order.
var variableParts = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
		"<id>"},
	{regexp.MustCompile(`"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»`), "<text>"},
	// an apostrophe inside a word does not begin a quotation
	{regexp.MustCompile(`(^|[\s(\[=:,])'[^']*'`), "$1<text>"},
	{regexp.MustCompile(`(?i)\b(?:0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]{7,}|[0-9a-f]{7,}[0-9][0-9a-f]*)\b`), "<id>"},
	{regexp.MustCompile(`[0-9]+(?:[.,:][0-9]+)*`), "<n>"},
}

// Fingerprint returns a hash of a failure's contract, CMS status and reason. Reasons that differ
// only in numbers, ids and quoted texts have the same fingerprint. If the reason contains a JSON
// answer, some quoted texts count; see extractJSONWords. normalised is the beginning of the reason,
// with placeholders for the parts that do not count.
func Fingerprint(contract string, cmsStatus int, reason string) (fingerprint, normalised string) {
	// The status counts anyway, and stands beside the text in lists.
	normalised = extractJSONWords(strings.TrimPrefix(reason, strconv.Itoa(cmsStatus)+" "))
	for _, v := range variableParts {
		normalised = v.pattern.ReplaceAllString(normalised, v.instead)
	}

	normalised = strings.Join(strings.Fields(normalised), " ")
	if r := []rune(normalised); len(r) > maxNormalised {
		normalised = string(r[:maxNormalised])
	}

	sum := sha256.Sum256([]byte(strings.Join([]string{contract, strconv.Itoa(cmsStatus), normalised}, "\n")))

	return hex.EncodeToString(sum[:6]), normalised
}

var (
	// jsonBegins matches the beginning of a JSON answer in a reason, after the text that Weir puts
	// before the answer.
	jsonBegins = regexp.MustCompile(`(?:^|: )[{\[]\s*["{\[]`)
	jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|$)`) // the last string may be truncated
	jsonName   = regexp.MustCompile(`^"[A-Za-z_][\w.-]*"$`)
	jsonEscape = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\/`, "/", `\n`, " ", `\r`,
		" ", `\t`, " ")
	// tellingName matches the names of JSON values that describe the failure rather than the
	// content.
	tellingName = regexp.MustCompile(
		`(?i)^"[\w.-]*(?:error|message|msg|title|detail|description|reason|code|type|fault|cause)s?"$`)
)

// extractJSONWords prepares a reason with a JSON answer for Fingerprint, which ignores quoted
// texts. All texts in JSON are quoted, so without this step different error messages would have the
// same fingerprint. If values of the answer describe the failure, the result has only these values
// in place of the JSON: those of several words, and those whose names match tellingName. Names,
// numbers and other texts, such as the id of a trace, do not count then.
//
// If no value describes the failure, names that match jsonName count, and each other quoted text
// becomes <text>. A reason without JSON stays unchanged.
func extractJSONWords(reason string) string {
	at := jsonBegins.FindStringIndex(reason)
	if at == nil {
		return reason
	}

	var b strings.Builder
	b.WriteString(reason[:at[0]])
	rest, name, telling := reason[at[0]:], "", []string(nil)
	for {
		is := jsonString.FindStringIndex(rest)
		if is == nil && len(telling) > 0 {
			return strings.TrimSuffix(reason[:at[0]], ":") + ": " + strings.Join(telling, ", ")
		}
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
		case !named && (strings.Contains(inner, " ") || tellingName.MatchString(name)):
			telling = append(telling, inner)
		default:
			b.WriteString("<text>")
		}
	}
}
