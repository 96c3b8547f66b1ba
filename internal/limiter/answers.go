package limiter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// news is what answers have shown since the last write of the row.
type news struct {
	pausedUntil  time.Time // by the clock of the process; zero = no answer asked for a pause
	isOverloaded bool      // an answer was 429
	hasSuccess   bool
}

func (n *news) isUrgent() bool { return n.isOverloaded || !n.pausedUntil.IsZero() }

// addOlder adds earlier news.
func (n *news) addOlder(o news) {
	n.pausedUntil = latest(n.pausedUntil, o.pausedUntil)
	n.isOverloaded = n.isOverloaded || o.isOverloaded
	n.hasSuccess = n.hasSuccess || o.hasSuccess
}

// firstUnix is the number from which on a reset is a time since 1970 in seconds, and firstMilli the
// one from which on it is in milliseconds. As a delay, they would be 31 years.
const (
	firstUnix  = 1e9
	firstMilli = 1e11
)

// readPause returns the pause that an answer asks for, an hour at most; 0 = none. The parameter
// named is a further header with a delay ("" = none).
//
// A RateLimit header of an answer that is no 429 asks for a pause only if no request is left for
// more than a second. Its seconds are rounded up, and the slots of a second are spread already.
func readPause(status int, h http.Header, named string, now time.Time) time.Duration {
	pause := time.Duration(0)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		pause = max(readDelay(h.Get("Retry-After"), now), readDelay(h.Get(named), now))
	}

	least := time.Second
	if status == http.StatusTooManyRequests {
		least = 0
	}

	if reset, isUsedUp := readUsedUp(h, now); isUsedUp && reset > least {
		pause = max(pause, reset)
	}

	return min(pause, longestPause)
}

// readUsedUp reports whether a header shows that no request is left, and returns the time until
// there are more.
func readUsedUp(h http.Header, now time.Time) (reset time.Duration, isUsedUp bool) {
	for _, prefix := range []string{"RateLimit", "X-RateLimit", "X-Rate-Limit"} {
		left, err := strconv.ParseFloat(strings.TrimSpace(h.Get(prefix+"-Remaining")), 64)
		if err == nil && left < 1 {
			reset, isUsedUp = max(reset, readDelay(h.Get(prefix+"-Reset"), now)), true
		}
	}

	// RateLimit has a list of limits: "name";r=0;t=12, or in an earlier draft remaining=0, reset=12
	for _, value := range h.Values("RateLimit") {
		for _, item := range splitLimits(value) {
			left, hasLeft := readMember(item, "r", "remaining")
			wait, hasWait := readMember(item, "t", "reset")
			if hasLeft && hasWait && left < 1 {
				reset, isUsedUp = max(reset, boundSeconds(wait)), true
			}
		}
	}

	return reset, isUsedUp
}

// splitLimits splits the header RateLimit into its limits. In the earlier draft the header has one
// limit, whose members are separated by commas.
func splitLimits(value string) []string {
	if strings.Contains(value, "remaining=") {
		return []string{strings.ReplaceAll(value, ",", ";")}
	}

	return strings.Split(value, ",")
}

// readMember returns the first member of a limit that has one of the names.
func readMember(item string, names ...string) (float64, bool) {
	for member := range strings.SplitSeq(item, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		for _, wanted := range names {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if name == wanted && err == nil {
				return n, true
			}
		}
	}

	return 0, false
}

// readDelay reads a header that has seconds, a date, or a time since 1970. Other values are no
// delay.
func readDelay(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	n, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		if at, err := http.ParseTime(value); err == nil {
			return boundSeconds(at.Sub(now).Seconds())
		}
		return 0
	case n >= firstMilli:
		return boundSeconds(n/1e3 - float64(now.UnixMilli())/1e3)
	case n >= firstUnix:
		return boundSeconds(n - float64(now.UnixMilli())/1e3)
	}

	return boundSeconds(n)
}

// boundSeconds returns a number of seconds, 0 at least and an hour at most.
func boundSeconds(n float64) time.Duration {
	if math.IsNaN(n) || n <= 0 {
		return 0
	}

	return time.Duration(min(n, longestPause.Seconds()) * float64(time.Second))
}
