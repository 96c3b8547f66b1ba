package contract

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/internal/weir"
)

// versionLimit is the highest version that a contract accepts. Without a limit, one wrong version
// (for example milliseconds instead of seconds) would supersede all later messages of its key. The
// zero versionLimit accepts all versions.
type versionLimit struct {
	isSet   bool
	highest weir.Version // the highest version; not set if ahead is set
	// longest time by which a version can lie in the future; 0 = highest is the limit
	ahead time.Duration
}

// parseVersionLimit parses def.VersionMax.
func parseVersionLimit(def Definition, zone *time.Location) (versionLimit, error) {
	switch text, isDuration := strings.CutPrefix(def.VersionMax, "+"); {
	case def.VersionMax == "":
		return versionLimit{}, nil
	case !def.Supersede:
		return versionLimit{},
			errors.New("it needs supersede: true; without it, versions are not compared")
	case isDuration:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return versionLimit{},
				fmt.Errorf("%q is no duration above 0, such as +24h", def.VersionMax)
		}
		return versionLimit{isSet: true, ahead: d}, nil
	}

	v, err := weir.ParseVersionIn(def.VersionMax, zone)
	if err != nil {
		return versionLimit{}, fmt.Errorf("%w, nor a duration such as +24h", err)
	}

	return versionLimit{isSet: true, highest: v}, nil
}

// checkVersion returns the problem of a version; "" = the limit accepts the version. If the limit
// is a time and the version is a number, or the other way round, checkVersion refuses the version,
// because the two cannot be compared.
func (l versionLimit) checkVersion(v weir.Version, now time.Time) string {
	highest := l.highest
	if l.ahead > 0 {
		highest = weir.VersionAt(now.Add(l.ahead))
	}

	switch {
	case !l.isSet:
		return ""
	case v.IsTime() != highest.IsTime() && highest.IsTime():
		return "must be a time"
	case v.IsTime() != highest.IsTime():
		return "must be a number, or numbers with dots between them"
	case v.Newer(highest) && l.ahead > 0:
		return fmt.Sprintf("lies more than %s in the future", l.ahead)
	case v.Newer(highest):
		return fmt.Sprintf("is above %s", highest)
	}

	return ""
}
