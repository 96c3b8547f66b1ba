package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"weir/internal/calendar"
	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/poll"
	"weir/internal/storage/azure"
)

// Settings is all that can be set. The environment says where things are, weir.yaml what
// is done; README.md has the table.
type Settings struct {
	Storage  secret         `yaml:"-"` // AzureWebJobsStorage
	Identity azure.Identity `yaml:"-"` // where that is not set
	Prefix   string         `yaml:"-"` // WEIR_PREFIX

	Lanes         int                   `yaml:"lanes"`
	Lease         duration              `yaml:"lease"`
	TicketDelay   span                  `yaml:"ticketDelay"`
	MaxBody       size                  `yaml:"maxBody"`
	Retention     duration              `yaml:"retention"`
	DeadRetention duration              `yaml:"deadRetention"`
	Delivery      delivery              `yaml:"delivery"`
	Poll          polling               `yaml:"poll"`
	Calendar      calendar.Settings     `yaml:"calendar"`
	Notify        []receiver            `yaml:"notify"`
	Callbacks     callbacks             `yaml:"callbacks"`
	Log           logging               `yaml:"log"`
	Contracts     []contract.Definition `yaml:"contracts"`
}

// logging sets which lines the process logs.
type logging struct {
	Level logLevel `yaml:"level"`
}

// logLevel is the least level that is logged: debug, info, warn or error.
type logLevel slog.Level

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (l *logLevel) UnmarshalYAML(n ast.Node) error {
	level, known := logLevels[n.GetToken().Value]
	if !known {
		return wrongValue(n, "a level: debug, info, warn or error")
	}
	*l = logLevel(level)
	return nil
}

type delivery struct {
	URL      string            `yaml:"url"`
	Method   string            `yaml:"method"`
	Headers  map[string]secret `yaml:"headers"`
	Timeout  duration          `yaml:"timeout"`
	Attempts int               `yaml:"attempts"`
	Settle   duration          `yaml:"settle"` // 0 = the lease's margin
	Backoff  backoff           `yaml:"backoff"`
	Patience duration          `yaml:"patience"` // with a CMS that answers and takes nothing

	Rate          rate `yaml:"rate"`          // of this instance over all lanes; over all instances when lanes is 1
	MaxConcurrent int  `yaml:"maxConcurrent"` // attempts of this instance at a time; 0 = one for each lane

	Instances string `yaml:"instances"` // which deliver: any, or only those that run the function process
}

// The values of delivery.instances.
const (
	anyInstance     = "any"
	processInstance = "process"
)

// leavesDelivery reports whether only instances that get tickets of process drain lanes.
func (s *Settings) leavesDelivery() bool { return s.Delivery.Instances == processInstance }

// polling is how handler poll works; its flags win.
type polling struct {
	Period    duration `yaml:"period"`
	Idle      duration `yaml:"idle"`
	Estimate  duration `yaml:"estimate"`
	Tolerance float64  `yaml:"tolerance"`
}

// rate is the time between two attempts, written as so many a second or a minute: 5/s, 90/m.
type rate time.Duration

var rateText = regexp.MustCompile(`^([0-9]{1,5})\s*/\s*(s|m)$`)

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (r *rate) UnmarshalYAML(n ast.Node) error {
	m := rateText.FindStringSubmatch(n.GetToken().Value)
	if m == nil || strings.Trim(m[1], "0") == "" {
		return wrongValue(n, "a rate such as 5/s or 90/m")
	}
	count, err := strconv.Atoi(m[1])
	if err != nil {
		return err
	}
	*r = rate(map[string]time.Duration{"s": time.Second, "m": time.Minute}[m[2]] / time.Duration(count))
	return nil
}

// backoff is {min, max}, or a list of the waits themselves.
type backoff struct {
	span
	steps []duration
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (b *backoff) UnmarshalYAML(n ast.Node) error {
	switch n.Type() {
	case ast.SequenceType:
		return yaml.NodeToValue(n, &b.steps, yaml.Strict())
	case ast.MappingType, ast.MappingValueType:
		return yaml.NodeToValue(n, &b.span, yaml.Strict())
	}
	return wrongValue(n, "{ min, max } or a list of waits such as [10s, 1m]")
}

// problem says what is wrong with it; empty = nothing.
func (b *backoff) problem() string {
	if b.steps != nil {
		for _, s := range b.steps {
			if s <= 0 || s > duration(24*time.Hour) {
				return "delivery.backoff: each wait must be above 0s and at most 1d"
			}
		}
		if len(b.steps) == 0 {
			return "delivery.backoff: the list is empty"
		}
		return ""
	}
	if b.Min > 0 && b.Min <= b.Max && b.Max <= duration(time.Hour) {
		return ""
	}
	return "delivery.backoff must have 0s < min ≤ max ≤ 1h"
}

type span struct {
	Min duration `yaml:"min"`
	Max duration `yaml:"max"`
}

// defaults are the settings where weir.yaml says nothing.
func defaults() Settings {
	day := duration(24 * time.Hour)
	return Settings{
		Lanes: 1, Lease: duration(30 * time.Second), TicketDelay: span{0, duration(10 * time.Second)}, MaxBody: 1 << 20,
		Retention: 7 * day, DeadRetention: 90 * day,
		Delivery: delivery{Method: "POST", Instances: anyInstance, Timeout: duration(30 * time.Second), Attempts: 5, Backoff: backoff{span: span{duration(time.Second), duration(5 * time.Minute)}}, Patience: duration(24 * time.Hour)},
		Poll:     polling{Period: duration(time.Minute), Idle: duration(5 * time.Second), Estimate: duration(2 * time.Second), Tolerance: 5},
	}
}

// secret is a string that does not print itself.
type secret string

func (secret) String() string   { return "(secret)" }
func (secret) GoString() string { return "(secret)" }

// MarshalText implements encoding.TextMarshaler, for logs and JSON.
func (s secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// duration is a Go duration that also takes days: 7d.
type duration time.Duration

// maxDays is what a time.Duration holds: more would become another time, without a word.
const maxDays = int(math.MaxInt64 / (24 * time.Hour))

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *duration) UnmarshalYAML(n ast.Node) error {
	text := n.GetToken().Value
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if count, err := strconv.Atoi(days); err == nil {
			if count < -maxDays || count > maxDays {
				return wrongValue(n, fmt.Sprintf("a duration of at most %dd", maxDays))
			}
			*d = duration(time.Duration(count) * 24 * time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return wrongValue(n, "a duration such as 30s, 5m or 7d")
	}
	*d = duration(v)
	return nil
}

// size is a number of bytes: 1048576, 512KiB, 1MiB.
type size int64

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *size) UnmarshalYAML(node ast.Node) error {
	text, factor := node.GetToken().Value, int64(1)
	for suffix, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = strings.TrimSpace(rest), f
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<32 {
		return wrongValue(node, "a size such as 1048576, 512KiB or 1MiB")
	}
	*s = size(n * factor)
	return nil
}

// wrongValue is the error of a value that cannot be read. It says where it stands as those of
// the parser do.
func wrongValue(n ast.Node, want string) error {
	at := n.GetToken()
	return fmt.Errorf("[%d:%d] %s: %q is not %s", at.Position.Line, at.Position.Column, strings.TrimPrefix(n.GetPath(), "$."), at.Value, want)
}

// errNoPrefix: the host finds the queues of process and poison by WEIR_PREFIX, without a default.
// If it is not set, the host runs on without these two, and only the sweep delivers what another
// instance left.
var errNoPrefix = errors.New("WEIR_PREFIX is not set, and the host needs it to find the queues: set the app setting WEIR_PREFIX, for example to weir")

// loadSettings reads the environment and weir.yaml. The error names every problem, one a
// line.
func loadSettings(env func(string) string) (Settings, error) {
	s := defaults()
	s.Prefix = cmp.Or(env("WEIR_PREFIX"), "weir")
	var problems []error
	if env("WEIR_PREFIX") == "" && env(hostPort) != "" {
		problems = append(problems, errNoPrefix)
	}
	if err := s.readStorage(env); err != nil {
		problems = append(problems, err)
	}
	path := configPath(env)
	text, err := os.ReadFile(path)
	if err != nil {
		return s, errors.Join(append(problems, fmt.Errorf("weir.yaml cannot be read: %w", err))...)
	}
	missing, err := s.decode(string(text), env)
	for _, name := range missing {
		problems = append(problems, fmt.Errorf("%s names ${%s}, which is not set in the environment", filepath.Base(path), name))
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", filepath.Base(path), err))
		return s, errors.Join(problems...)
	}
	return s, errors.Join(append(problems, s.check()...)...)
}

// configPath is WEIR_CONFIG, or weir.yaml beside host.json.
func configPath(env func(string) string) string {
	root := env("FUNCTIONS_APP_ROOT_PATH")
	path := env("WEIR_CONFIG")
	if path == "" {
		path = "weir.yaml"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	return path
}

// check gives every problem of and between the values.
func (s *Settings) check() []error {
	var problems []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	d := s.Delivery
	must(s.Lanes >= 1 && s.Lanes <= lane.MaxLanes, "lanes is %d and must be 1 to %d", s.Lanes, lane.MaxLanes)
	must(s.Lease >= duration(15*time.Second) && s.Lease <= duration(time.Minute), "lease is %s and must be 15s to 60s", s.Lease)
	must(s.TicketDelay.Min >= 0 && s.TicketDelay.Min <= s.TicketDelay.Max && s.TicketDelay.Max <= duration(time.Hour), "ticketDelay must have 0s ≤ min ≤ max ≤ 1h")
	must(s.MaxBody >= 1 && s.MaxBody <= 100<<20, "maxBody is %d and must be 1 byte to 100MiB, which is what the Functions host takes", s.MaxBody)
	must(s.Retention >= duration(time.Hour), "retention is %s and must be at least 1h", s.Retention)
	must(s.DeadRetention >= s.Retention, "deadRetention is %s and must be at least retention (%s)", s.DeadRetention, s.Retention)
	must(d.URL != "", "delivery.url is missing: the address of the CMS")
	must(d.Method == "POST" || d.Method == "PUT" || d.Method == "PATCH", "delivery.method is %q and must be POST, PUT or PATCH", d.Method)
	must(d.Timeout > 0 && d.Timeout <= duration(time.Hour), "delivery.timeout is %s and must be over 0s and at most 1h", d.Timeout)
	must(d.Attempts >= 1 && d.Attempts <= 1000, "delivery.attempts is %d and must be 1 to 1000", d.Attempts)
	must(d.Settle >= 0 && d.Settle <= duration(time.Hour), "delivery.settle is %s and must be 0s to 1h", d.Settle)
	must(d.Patience >= duration(time.Minute) && d.Patience <= duration(90*24*time.Hour),
		"delivery.patience is %s and must be 1m to 90d", d.Patience)
	must(d.MaxConcurrent >= 0 && d.MaxConcurrent <= 1024, "delivery.maxConcurrent is %d and must be 0 (one for each lane) to 1024", d.MaxConcurrent)
	must(d.Instances == anyInstance || d.Instances == processInstance, "delivery.instances is %q and must be %s or %s", d.Instances, anyInstance, processInstance)
	must(d.Backoff.problem() == "", "%s", d.Backoff.problem())
	if _, err := calendar.New(s.Calendar); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			problems = append(problems, errors.New("calendar: "+line))
		}
	}
	if err := s.poll().Check(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			problems = append(problems, errors.New("poll."+line))
		}
	}
	return append(problems, s.notifyProblems()...)
}

func (d duration) String() string { return time.Duration(d).String() }

// settle is how long something unanswered may be at work in the CMS.
func (s *Settings) settle() time.Duration {
	if s.Delivery.Settle > 0 {
		return time.Duration(s.Delivery.Settle)
	}
	return lease.Margin(time.Duration(s.Lease))
}

func (s *Settings) backoff() drain.Backoff {
	b := drain.Backoff{Min: time.Duration(s.Delivery.Backoff.Min), Max: time.Duration(s.Delivery.Backoff.Max)}
	for _, step := range s.Delivery.Backoff.steps {
		b.Steps = append(b.Steps, time.Duration(step))
	}
	return b
}

func (s *Settings) poll() poll.Config {
	return poll.Config{Period: time.Duration(s.Poll.Period), Idle: time.Duration(s.Poll.Idle), Estimate: time.Duration(s.Poll.Estimate),
		Tolerance: s.Poll.Tolerance, Timeout: time.Duration(s.Delivery.Timeout)}
}

func (s *Settings) headers() map[string]string {
	out := map[string]string{}
	for name, value := range s.Delivery.Headers {
		out[name] = string(value)
	}
	return out
}
