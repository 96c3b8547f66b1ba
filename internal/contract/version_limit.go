package contract

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/internal/weir"
)

// versionLimit is the highest version that a contract accepts. One wrong version (for example milliseconds
// instead of seconds) would supersede all later messages of its key. The zero versionLimit accepts all
// versions.
type versionLimit struct {
	isSet   bool
	highest weir.Version  // highest version; a version of another kind is refused; not set if ahead is set
	ahead   time.Duration // how far a version, which is then a time, may lie in the future; 0 = highest is the limit
}

// parseVersionLimit parses versionMax of a definition.
func parseVersionLimit(def Definition) (versionLimit, error) {
	switch text, isDuration := strings.CutPrefix(def.VersionMax, "+"); {
	case def.VersionMax == "":
		return versionLimit{}, nil
	case !def.Supersede:
		return versionLimit{}, errors.New("it needs supersede: true; without it, versions are not compared")
	case isDuration:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return versionLimit{}, fmt.Errorf("%q is no duration above 0, such as +24h", def.VersionMax)
		}
		return versionLimit{isSet: true, ahead: d}, nil
	}
	v, err := weir.ParseVersion(def.VersionMax)
	if err != nil {
		return versionLimit{}, fmt.Errorf("%w, nor a duration such as +24h", err)
	}
	return versionLimit{isSet: true, highest: v}, nil
}

// checkVersion returns the problem of a version; "" = the limit accepts the version. checkVersion refuses a version
// of another kind than the limit, because a number cannot be compared with a time.
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
