package weir

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// rfc3339 matches a date-time of RFC 3339, section 5.6. time.Parse also accepts other texts, such
// as an hour with one digit, a comma before the fraction, and the offset +24:00. The groups are the
// text before the seconds, the seconds, and the rest.
var rfc3339 = regexp.MustCompile(`^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:)([0-9]{2})` +
	`((?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))$`)

// ParseTime parses a date-time of RFC 3339, section 5.6, in which T and Z can be lower case. The
// leap second 60, which can only end a month in UTC, becomes the first second of the next month, as
// in POSIX.
func ParseTime(text string) (time.Time, error) {
	parts := rfc3339.FindStringSubmatch(strings.ToUpper(text))
	if parts == nil {
		return time.Time{}, notTimeError(text)
	}

	if parts[2] != "60" {
		t, err := time.Parse(time.RFC3339Nano, parts[0])
		if err != nil {
			return time.Time{}, notTimeError(text)
		}
		return t, nil
	}

	before, err := time.Parse(time.RFC3339Nano, parts[1]+"59"+parts[3])
	if err != nil {
		return time.Time{}, notTimeError(text)
	}

	t := before.Add(time.Second)
	if first := t.UTC(); first.Day() != 1 || first.Hour() != 0 || first.Minute() != 0 ||
		t.Year() > 9999 {
		return time.Time{}, notTimeError(text)
	}

	return t, nil
}

func notTimeError(text string) error {
	return fmt.Errorf("%s is not a time by RFC 3339 with an offset, such as 2030-01-31T08:00:00+01:00",
		quoteInput(text))
}
