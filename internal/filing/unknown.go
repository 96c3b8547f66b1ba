package filing

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// UnknownNameError returns an error of kind Malformed for a name that is not in known. The argument kind says where the
// name was used, for example "header". The message of the error suggests the most similar known name. If no known name
// is similar, the message lists all known names.
func UnknownNameError(kind, name string, known []string) error {
	nearest, distance := "", len(name)
	for _, k := range known {
		// If more than a third of the letters differ, the name is not taken for a misspelt k.
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

// truncateName shortens a long name, because the error's message repeats the name.
func truncateName(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
