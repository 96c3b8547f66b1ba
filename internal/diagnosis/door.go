package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/door"
	"weir/internal/settings"
)

// hasDoor reports whether weir serve can run with these settings, as far as weir check knows: the
// settings have a folder, keys or a certificate.
func hasDoor(s *settings.Settings) bool {
	return s.Data != "" || len(s.Keys) > 0 || s.TLS != (settings.TLSFiles{})
}

// checkDoor checks the keys and the certificate of weir serve. The settings are valid.
func (s *System) checkDoor(now time.Time) Finding {
	keys, _ := door.ParseKeys(s.Settings.Keys) // settings.Load has checked the keys
	f := Finding{Name: "door", Detail: describeKeys(keys), Warnings: keys.Equal()}
	if closed := keys.Closed(); len(keys) > 0 && len(closed) > 0 {
		f.Warnings = append(f.Warnings, "no key opens "+strings.Join(closed, ", ")+
			": weir serve refuses all requests to them; weir key new makes a key")
	}

	if !s.Settings.TLS.IsSet() {
		return f
	}

	expiresAt, warning, err := door.CheckCertificate(s.Settings.TLS.Certificate,
		s.Settings.TLS.Key, now)
	if err != nil {
		f.Wrong, f.Todo = err, "correct the file, or tls in "+s.Settings.FileName
		return f
	}

	f.Detail += "; certificate until " + expiresAt.UTC().Format(time.RFC3339)
	if warning != "" {
		f.Warnings = append(f.Warnings, warning)
	}

	return f
}

// describeKeys returns the functions that have keys, for people.
func describeKeys(keys door.Keys) string {
	if len(keys) == 0 {
		return "no keys: weir serve listens only on a loopback address"
	}

	var names []string
	for _, name := range append(slices.Clone(door.Functions), door.All) {
		if n := len(keys[name]); n > 0 {
			names = append(names, fmt.Sprintf("%s (%d)", name, n))
		}
	}

	return "keys of " + strings.Join(names, ", ")
}
