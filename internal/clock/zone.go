package clock

import (
	"errors"
	"strings"
	"time"
)

// LoadZone returns the time zone of a name of the tz database. It refuses the other names that the
// directories of a machine may hold (its local time, POSIX rules, zones with leap seconds), so that each
// machine accepts the same names.
func LoadZone(name string) (*time.Location, error) {
	lower := strings.ToLower(name)
	switch {
	case lower == "local", lower == "localtime", lower == "posixrules", lower == "posixtime",
		strings.HasPrefix(lower, "posix/"), strings.HasPrefix(lower, "right/"):
		return nil, errors.New("no zone of the tz database")
	}
	return time.LoadLocation(name)
}
