package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/weir"
	"weir/internal/wire"
)

// functions are the functions that templates can call.
var functions = template.FuncMap{
	"count": anyCount, "rate": formatRate, "laneRate": formatLaneRate, "span": spanText,
	"emptyIn": emptyIn,
	"moment":  formatTime, "minute": formatMinute, "fraction": formatFraction,
	"stamp": formatISO, "ago": formatAgo, "show": Show,
	"clip": truncateText, "money": formatMoney, "bytes": bytesText, "stage": stageBadge,
	"pair":  func(root, v any) pairOf { return pairOf{root, v} },
	"lines": diffLines, "percent": formatPercent,
	"plural": func(n any, one, many string) string { return formatPlural(asWhole(n), one, many) },
	"state":  jobStateBadge, "batchState": batchStateBadge, "shownNames": wire.ShownNames,
	"canChange": canChange,
}

// canChange reports whether an operator can replay, discard or cancel a message in this stage.
func canChange(s weir.Stage) bool {
	return s == weir.Dead || s == weir.Scheduled || s == weir.Queued || s == weir.Retrying
}

// pairOf passes two values to a template: the page, and the value that the template displays.
type pairOf struct{ Page, V any }

type integer interface{ ~int | ~int64 }

// formatCount formats a number with thin spaces between groups of three digits.
func formatCount[N integer](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "−", digits[1:]
	}

	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}

	return sign + digits
}

// formatPlural formats a number with a noun, such as "1 key" or "2 keys".
func formatPlural[N integer](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return formatCount(n) + " " + many
}

func anyCount(n any) string { return formatCount(asWhole(n)) }

// asWhole converts an int or an int64 that a template passes.
func asWhole(n any) int64 {
	if small, ok := n.(int); ok {
		return int64(small)
	}
	return n.(int64)
}

// formatRate formats a number of messages per minute. It writes one decimal below 10, and none from
// 10 on.
func formatRate(perMinute float64) string {
	switch {
	case perMinute <= 0:
		return "0"
	case perMinute < 10:
		return strconv.FormatFloat(perMinute, 'f', 1, 64)
	}
	return formatCount(int64(math.Round(perMinute)))
}

func formatWhole(n float64) string { return formatCount(int64(math.Round(n))) }

// formatLaneRate formats a number of messages per minute. It formats nil, an unknown number, as 0.
func formatLaneRate(perMinute *float64) string { return formatRate(valueOrZero(perMinute)) }

// emptyIn returns the expected time until a lane is empty; 0 = the time is not known, or the lane
// is empty.
func emptyIn(l wire.Lane) time.Duration {
	return time.Duration(valueOrZero(l.EmptyIn) * float64(time.Second))
}

func formatPercent(share float64) string {
	switch {
	case share <= 0:
		return "0 %"
	case share < 0.001:
		return "< 0.1 %"
	case share < 0.1:
		return strconv.FormatFloat(share*100, 'f', 1, 64) + " %"
	}

	return strconv.FormatFloat(share*100, 'f', 0, 64) + " %"
}

func formatMoney(usd float64) string {
	switch {
	case usd <= 0:
		return "0 USD"
	case usd < 0.01:
		return "< 0.01 USD"
	}
	return strconv.FormatFloat(usd, 'f', 2, 64) + " USD"
}

func bytesText(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// spanText formats a duration with at most two units.
func spanText(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) + " ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return joinUnits(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return joinUnits(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}

	return joinUnits(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func joinUnits(n int, unit string, m int, lesser string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, lesser)
}

// formatTime formats a time in UTC. It leaves out the date if the time is today, and the seconds if
// the time is in another year.
func formatTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	switch {
	case t.IsZero():
		return "–"
	case t.Year() >= 9000:
		return "no end"
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04:05")
	case t.Year() == now.Year():
		return t.Format("2 Jan 15:04:05")
	}

	return t.Format("2 Jan 2006 15:04")
}

// formatMinute formats the hour and the minute of a time, in UTC.
func formatMinute(t time.Time) string { return t.UTC().Format("15:04") }

// formatFraction formats the milliseconds of a time, such as ".250".
func formatFraction(t time.Time) string { return t.Format(".000") }

func formatISO(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// formatAgo formats the duration between t and now, such as "5 min ago" or "in 5 min".
func formatAgo(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case t.Year() >= 9000:
		return "no end"
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + spanText((-d).Round(time.Second))
	default:
		return spanText(d.Round(time.Second)) + " ago"
	}
}

// truncateText returns s if it has at most n characters. Otherwise it returns the first n
// characters and an ellipsis.
func truncateText(n int, s string) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n]) + "…"
}

// Show replaces each character that is invisible or changes the writing direction. The replacement
// is the number of the character, such as ⟨U+202E⟩. Show replaces invalid UTF-8 with ⟨U+FFFD⟩.
func Show(s string) string {
	if strings.IndexFunc(s, isInvisible) < 0 && utf8.ValidString(s) {
		return s
	}

	var b strings.Builder
	for _, r := range s {
		if isInvisible(r) || r == utf8.RuneError {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		} else {
			b.WriteRune(r)
		}
	}

	return b.String()
}

func isInvisible(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) ||
		unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Co, r))
}
