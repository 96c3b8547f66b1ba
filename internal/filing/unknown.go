package filing

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// UnknownNameError returns the Malformed error for a header or parameter that Weir does not know. The error's message
// suggests the nearest known name. If none is near, it lists all known names.
func UnknownNameError(kind, name string, known []string) error {
	nearest, distance := "", len(name)
	for _, k := range known {
		// If more than a third of the letters are wrong, the name is another name, not a misspelt one.
		if d := levenshtein.ComputeDistance(foldName(name), foldName(k)); d < distance && d <= len(k)/3 {
			nearest, distance = k, d
		}
	}
	message := "there is no " + kind + " " + truncateName(name)
	if nearest != "" {
		message += "; did you mean " + nearest + "?"
	} else {
		message += "; possible are " + strings.Join(known, ", ")
	}
	return MalformedError(message)
}

// foldName removes case, hyphens and underscores from a name, so that Weir-DeliverAt and weir_deliver_at equal
// Weir-Deliver-At.
func foldName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// truncateName shortens a long name, because the answer repeats it.
func truncateName(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
