package weir

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Version is a message's version in a comparable form: a number, numbers with dots between them, or
// a time as ParseTradeTime reads it.
type Version struct {
	parts []string  // digits without leading zeros
	at    time.Time // set if parts is nil
}

// ParseVersion parses a version such as 12, 1.10.2 or 2026-01-31T08:00:00Z. A time must have an
// offset.
func ParseVersion(s string) (Version, error) { return ParseVersionIn(s, nil) }

// ParseVersionIn is ParseVersion with the zone of times without an offset; nil = they are refused.
// Digits alone are a number, also those of a date (20300131).
func ParseVersionIn(s string, zone *time.Location) (Version, error) {
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			at, err := ParseTradeTime(s, zone)
			if err != nil {
				return Version{}, fmt.Errorf(
					"%s is neither a number, nor numbers with dots between them, and %w",
					quoteInput(s), err)
			}
			return Version{at: at}, nil
		}

		parts[i] = strings.TrimLeft(p, "0")
	}

	return Version{parts: parts}, nil
}

// VersionAt returns a version that is a time.
func VersionAt(at time.Time) Version { return Version{at: at} }

// IsTime reports whether the version is a time.
func (v Version) IsTime() bool { return v.parts == nil }

// Newer reports whether v is newer than other. Numbers are compared part by part, and a missing
// part is 0: 1.10 is newer than 1.9, but not newer than 1.10.0. If one version is a number and the
// other one a time, neither is newer.
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

// DescribeFraction returns a warning if two versions have one dot each, and the older one would be
// the newer one if both were decimal fractions: 1.5 is older than 1.25 as numbers with dots, and
// newer as a fraction. For other versions it returns "".
func DescribeFraction(older, newer string) string {
	a, fractionA, isA := strings.Cut(older, ".")
	b, fractionB, isB := strings.Cut(newer, ".")
	if !isA || !isB || strings.Trim(a+b+fractionA+fractionB, "0123456789") != "" ||
		strings.TrimLeft(a, "0") != strings.TrimLeft(b, "0") {
		return ""
	}

	length := max(len(fractionA), len(fractionB))
	pad := func(fraction string) string {
		return fraction +
			strings.Repeat("0", length-len(fraction))
	}
	if pad(fractionA) <= pad(fractionB) {
		return ""
	}

	return fmt.Sprintf("%s is older than %s as numbers with dots, and would be newer as a decimal fraction",
		older, newer)
}

const (
	// A number with more than maxUsualDigits digits is always suspicious. A time in milliseconds,
	// written as a number (20260131080000123), has 17 digits.
	maxUsualDigits = 18
	// A number is suspicious if it has at least minJumpDigits digits, and at least jumpDigits more
	// digits than the previous version's number. A time in milliseconds has three digits more than
	// a time in seconds.
	jumpDigits    = 3
	minJumpDigits = 7
	// A version that is a time is suspicious if it is more than maxAhead later than now.
	maxAhead = 24 * time.Hour
)

// DescribeJump returns the reason why v is suspicious; "" = v is plausible. previous is the version
// that was delivered before v for the same key and contract. If there was none, previous is the
// zero Version. A wrong version that is too high would supersede all later messages of its key.
func (v Version) DescribeJump(previous Version, now time.Time) string {
	if v.parts == nil {
		if v.at.After(now.Add(maxAhead)) {
			return "a time more than a day ahead"
		}
		return ""
	}

	for i := range v.parts {
		if len(v.parts[i]) > maxUsualDigits {
			return fmt.Sprintf("a number with more than %d digits", maxUsualDigits)
		}
	}

	if previous.parts == nil {
		return ""
	}

	for i := range v.parts {
		if a, b := v.partAt(i), previous.partAt(i); a != b {
			if len(a) >= minJumpDigits && len(a) >= len(b)+jumpDigits {
				return fmt.Sprintf("more than a hundred times the version before it (%s)", previous)
			}
			break
		}
	}

	return ""
}

// String returns the numbers without leading zeros, or the time in RFC 3339.
func (v Version) String() string {
	if v.parts == nil {
		return v.at.Format(time.RFC3339Nano)
	}

	parts := make([]string, len(v.parts))
	for i, p := range v.parts {
		parts[i] = cmp.Or(p, "0")
	}

	return strings.Join(parts, ".")
}

func (v Version) partAt(i int) string {
	if i < len(v.parts) {
		return v.parts[i]
	}
	return ""
}
