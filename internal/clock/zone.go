package clock

import (
	"errors"
	"strings"
	"time"
)

// LoadZone returns the time zone with a name of the tz database; "" means UTC. Some machines have
// further names, such as localtime and posix/Europe/Berlin. LoadZone refuses these names, so that
// all machines accept the same names.
func LoadZone(name string) (*time.Location, error) {
	lower := strings.ToLower(name)
	switch {
	case lower == "local", lower == "localtime", lower == "posixrules", lower == "posixtime",
		strings.HasPrefix(lower, "posix/"), strings.HasPrefix(lower, "right/"):
		return nil, errors.New("no zone of the tz database")
	}
	return time.LoadLocation(name)
}
