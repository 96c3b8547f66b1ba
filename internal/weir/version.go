package weir

import (
	"fmt"
	"strings"
	"time"
)

// Version is a message's version in a comparable form: a number, numbers with dots between them, or a
// time in RFC 3339.
type Version struct {
	parts []string  // digits without leading zeros
	at    time.Time // when parts is nil
}

// ParseVersion parses a version such as 12, 1.10.2 or 2026-01-31T08:00:00Z.
func ParseVersion(s string) (Version, error) {
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Version{at: at}, nil
	}
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return Version{}, fmt.Errorf(
				"%q is neither a number, nor numbers with dots between them, nor a time by RFC 3339", s)
		}
		parts[i] = strings.TrimLeft(p, "0")
	}
	return Version{parts: parts}, nil
}

// Newer reports whether v is newer than other. Numbers compare part by part, and a missing part counts
// as 0: 1.10 is newer than 1.9, but not newer than 1.10.0. A number and a time are never newer than each
// other.
func (v Version) Newer(other Version) bool {
	if (v.parts == nil) != (other.parts == nil) {
		return false
	}
	for i := range max(len(v.parts), len(other.parts)) {
		if a, b := v.partAt(i), other.partAt(i); a != b {
			return len(a) > len(b) || (len(a) == len(b) && a > b)
		}
	}
	return v.at.After(other.at)
}

func (v Version) partAt(i int) string {
	if i < len(v.parts) {
		return v.parts[i]
	}
	return ""
}
