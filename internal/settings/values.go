package settings

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"weir/internal/fold"
)

// LogLevel is the lowest level that is logged: debug, info, warn or error.
type LogLevel slog.Level

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (l *LogLevel) UnmarshalYAML(n ast.Node) error {
	level, known := logLevels[n.GetToken().Value]
	if !known {
		return newValueError(n, "a level: debug, info, warn or error")
	}
	*l = LogLevel(level)
	return nil
}

// Fold has the rules of a list such as [case, accents].
type Fold struct{ Rules fold.Rules }

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (f *Fold) UnmarshalYAML(n ast.Node) error {
	var names []string
	if err := yaml.NodeToValue(n, &names, yaml.Strict()); err != nil {
		return newValueError(n,
			"a list such as [case, accents, nfc]; leave fold out if no keys are folded")
	}

	for i, name := range names {
		one, err := fold.Parse([]string{name})
		if err != nil {
			at := n
			if list, isList := n.(*ast.SequenceNode); isList {
				at = list.Values[i]
			}
			return newValueError(at, "case, accents or nfc")
		}

		f.Rules |= one
	}

	return nil
}

// Rate is a number of events per second or per minute, written as 5/s or 90/m. The zero rate means
// no limit.
type Rate struct {
	Count int
	Per   time.Duration // one second or one minute
}

var ratePattern = regexp.MustCompile(`^([0-9]{1,5})\s*/\s*(s|m)$`)

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (r *Rate) UnmarshalYAML(n ast.Node) error {
	m := ratePattern.FindStringSubmatch(n.GetToken().Value)
	if m == nil || strings.Trim(m[1], "0") == "" {
		return newValueError(n, "a rate such as 5/s or 90/m")
	}

	count, err := strconv.Atoi(m[1])
	if err != nil {
		return err
	}

	r.Count, r.Per = count, map[string]time.Duration{"s": time.Second, "m": time.Minute}[m[2]]

	return nil
}

// Interval returns the time between two events at this rate, or 0 if there is no limit.
func (r Rate) Interval() time.Duration {
	if r.Count == 0 {
		return 0
	}
	return r.Per / time.Duration(r.Count)
}

// Backoff has either the limits of a wait, or a list of waits.
type Backoff struct {
	DelayRange
	steps []Duration
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (b *Backoff) UnmarshalYAML(n ast.Node) error {
	switch n.Type() {
	case ast.SequenceType:
		return yaml.NodeToValue(n, &b.steps, yaml.Strict())
	case ast.MappingType, ast.MappingValueType:
		return yaml.NodeToValue(n, &b.DelayRange, yaml.Strict())
	}
	return newValueError(n, "{ min, max } or a list of waits such as [10s, 1m]")
}

// checkValues adds a problem if a wait is out of its limits.
func (b *Backoff) checkValues(c *checker, path string) {
	if b.steps == nil {
		c.must(b.Min > 0 && b.Min <= b.Max && b.Max <= Duration(time.Hour), path,
			"must have 0s < min ≤ max ≤ 1h")
		return
	}

	c.must(len(b.steps) > 0, path, "the list is empty")
	for i, step := range b.steps {
		c.must(step > 0 && step <= Duration(24*time.Hour), fmt.Sprintf("%s[%d]", path, i),
			"each wait must be above 0s and at most 1d")
	}
}

// DelayRange has the limits of a delay.
type DelayRange struct {
	Min Duration `yaml:"min"`
	Max Duration `yaml:"max"`
}

// Secret is a string that fmt, slog and JSON show as "(secret)".
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "(secret)" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "(secret)" }

// MarshalText implements encoding.TextMarshaler, for logs and JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Duration is a time.Duration. In weir.yaml it can also be written as a number of days, such as 7d.
type Duration time.Duration

// maxDays is the largest number of days that fits in a time.Duration.
const maxDays = int(math.MaxInt64 / (24 * time.Hour))

// String returns the duration as weir.yaml writes it, such as 7d, 25h or 1m30s.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}

	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	text := n.GetToken().Value
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if count, err := strconv.Atoi(days); err == nil {
			if count < -maxDays || count > maxDays {
				return newValueError(n, fmt.Sprintf("a duration of at most %dd", maxDays))
			}
			*d = Duration(time.Duration(count) * 24 * time.Hour)
			return nil
		}
	}

	v, err := time.ParseDuration(text)
	if err != nil {
		return newValueError(n, "a duration such as 30s, 5m or 7d")
	}

	*d = Duration(v)

	return nil
}

// ByteSize is a number of bytes, written as 1048576, 512KiB or 1MiB.
type ByteSize int64

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *ByteSize) UnmarshalYAML(node ast.Node) error {
	text, factor := node.GetToken().Value, int64(1)
	for suffix, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = strings.TrimSpace(rest), f
			break
		}
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<32 {
		return newValueError(node, "a size such as 1048576, 512KiB or 1MiB")
	}

	*s = ByteSize(n * factor)

	return nil
}

// newValueError returns the problem of a value that cannot be read.
func newValueError(n ast.Node, want string) error {
	at := n.GetToken()
	return newProblemAt(at, strings.TrimPrefix(n.GetPath(), "$."), "%q is not %s", at.Value, want)
}
