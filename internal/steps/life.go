package steps

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weir/internal/signin"
)

const (
	// maxLife is the longest lifetime of a credential that Weir believes. A longer one is a mistake
	// of units, as a rule, and Weir would use a credential that has ended.
	maxLife = 30 * 24 * time.Hour
	// firstUnixTime is the number from which on a number is a time since 1970, in seconds; from
	// firstUnixMilli on it is one in milliseconds. As seconds, these numbers would be lifetimes of
	// 31 and of 3,000 years.
	firstUnixTime, firstUnixMilli = 1_000_000_000, 100_000_000_000
)

// setLife sets c.ExpiresAt if the setting "for" is an expression. If its value is no lifetime that
// Weir believes, the credential has the default lifetime, and c.Doubt the reason: a sign-in that
// succeeds must not fail by its lifetime.
func (s *SignIn) setLife(c *signin.Credential, began time.Time, env map[string]any) {
	if s.named == nil {
		return
	}

	value, err := s.named.evaluateLeaf(env)
	var life time.Duration
	problem := "it cannot be evaluated with the answers"
	if err == nil {
		life, problem = parseLife(value, began)
	}

	if problem != "" {
		life = defaultLife
		c.Doubt = fmt.Sprintf("delivery.signIn.for: %s; the credential is renewed after %s",
			problem, defaultLife)
	}

	c.ExpiresAt = began.Add(life)
}

// parseLife returns the lifetime that the value of the setting "for" stands for: seconds, a
// duration such as 15m, or the time of the end in RFC 3339, in seconds or in milliseconds since
// 1970. If it is no lifetime that Weir believes, problem is the reason.
func parseLife(value any, now time.Time) (life time.Duration, problem string) {
	text := strings.TrimSpace(fmt.Sprint(value))
	number, isNumber := numberOf(value, text)
	at, notTime := time.Parse(time.RFC3339, text)
	d, notDuration := time.ParseDuration(text)
	switch {
	case isNumber && number >= firstUnixMilli:
		life = time.UnixMilli(int64(min(number, 1e15))).Sub(now)
	case isNumber && number >= firstUnixTime:
		life = time.Unix(int64(number), 0).Sub(now)
	case isNumber:
		life = time.Duration(number * float64(time.Second))
	case notTime == nil:
		life = at.Sub(now)
	case notDuration == nil:
		life = d
	default:
		return 0, fmt.Sprintf("its value is %s, and no number of seconds, duration or time",
			describeKind(value))
	}

	return life, checkLife(life)
}

func numberOf(value any, text string) (float64, bool) {
	switch value.(type) {
	case int, float64, json.Number, string:
		number, err := strconv.ParseFloat(text, 64)
		return number, err == nil && !math.IsNaN(number) && !math.IsInf(number, 0)
	}
	return 0, false
}

// checkLife returns the reason why Weir does not believe a lifetime; empty = Weir believes it.
func checkLife(life time.Duration) string {
	switch {
	case life <= 0:
		return "it is over already"
	case life > maxLife:
		return fmt.Sprintf("it is %.0f days, and at most %.0f are believed; write seconds, a duration such as "+
			"15m, or the time of the end", life.Hours()/24, maxLife.Hours()/24)
	}

	return ""
}
