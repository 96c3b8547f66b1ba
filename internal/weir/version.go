package weir

import (
	"fmt"
	"strings"
	"time"
)

// Version is a message's version in a form that can be compared: a number, numbers with
// dots between them, or a moment by RFC 3339.
type Version struct {
	parts []string  // digits without leading zeros
	at    time.Time // when parts is nil
}

// ParseVersion reads a version such as 12, 1.10.2 or 2026-01-31T08:00:00Z.
func ParseVersion(s string) (Version, error) {
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Version{at: at}, nil
	}
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return Version{}, fmt.Errorf("%q is neither a number, nor numbers with dots between them, nor a time by RFC 3339", s)
		}
		parts[i] = strings.TrimLeft(p, "0")
	}
	return Version{parts: parts}, nil
}

// Newer reports whether v is newer than other. Numbers compare part by part, one that is
// missing counting as 0: 1.10 is newer than 1.9 and no newer than 1.10.0. Neither of a
// number and a time is newer than the other.
func (v Version) Newer(other Version) bool {
	if (v.parts == nil) != (other.parts == nil) {
		return false
	}
	for i := range max(len(v.parts), len(other.parts)) {
		if a, b := v.part(i), other.part(i); a != b {
			return len(a) > len(b) || (len(a) == len(b) && a > b)
		}
	}
	return v.at.After(other.at)
}

func (v Version) part(i int) string {
	if i < len(v.parts) {
		return v.parts[i]
	}
	return ""
}
