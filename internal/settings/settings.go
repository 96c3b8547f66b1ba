package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/calendar"
	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/lane/epochs"
	"weir/internal/lease"
	"weir/internal/poll"
	"weir/internal/recur"
	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/storage/azure"
)

// Settings has all settings. The storage settings come from the environment. All others come from
// weir.yaml. The document docs/settings.md describes each setting.
type Settings struct {
	Storage  Secret         `yaml:"-"` // AzureWebJobsStorage
	Identity azure.Identity `yaml:"-"` // used if Storage is empty
	Prefix   string         `yaml:"-"` // WEIR_PREFIX
	// WEIR_DATA: a folder in place of the storage account; "" = none
	Data string `yaml:"-"`

	Lanes          int               `yaml:"lanes"`
	Fold           Fold              `yaml:"fold"`
	Lease          Duration          `yaml:"lease"`
	TicketDelay    DelayRange        `yaml:"ticketDelay"`
	MaxBody        ByteSize          `yaml:"maxBody"`
	Retention      Duration          `yaml:"retention"`
	DeadRetention  Duration          `yaml:"deadRetention"`
	AuditRetention Duration          `yaml:"auditRetention"`
	Delivery       Delivery          `yaml:"delivery"`
	Schedules      Schedules         `yaml:"schedules"`
	Poll           Poll              `yaml:"poll"`
	Calendar       calendar.Settings `yaml:"calendar"`
	Notify         []Receiver        `yaml:"notify"`
	Callbacks      Callbacks         `yaml:"callbacks"`
	Log            Log               `yaml:"log"`
	// false = no address shows the description of the API
	OpenAPI bool   `yaml:"openapi"`
	Intake  Intake `yaml:"intake"`
	// nil = each caller with the function key may send
	Upstreams []Upstream `yaml:"upstreams"`
	// steps that several contracts share, by name
	LookUps   steps.Source `yaml:"lookups"`
	Contracts []Contract   `yaml:"contracts"`

	// The settings of the command weir serve. A Functions host checks keys and ends TLS itself.
	Keys map[string][]string `yaml:"keys"` // hashes of keys, by the name of the function; see package door
	TLS  TLSFiles            `yaml:"tls"`

	File     *steps.File `yaml:"-"` // weir.yaml, for the parts that package steps reads
	FileName string      `yaml:"-"` // name of weir.yaml without its folder

	expander *envExpander // knows the values of variables; nil = weir.yaml was not read
	// the parsed weir.yaml, for the positions of problems; nil = the file is empty
	body ast.Node
}

// Contract describes a kind of message, and the requests that write such a message to the
// CMS.
type Contract struct {
	contract.Definition `yaml:",inline"`
	// not set = one request, whose body is the message
	Steps    steps.Source `yaml:"steps"`
	RetryFor *Duration    `yaml:"retryFor"` // nil = delivery.retryFor
}

type Log struct {
	Level LogLevel `yaml:"level"`
}

// Delivery describes the CMS and the delivery of messages.
type Delivery struct {
	URL      string            `yaml:"url"`
	Method   string            `yaml:"method"`
	Headers  map[string]Secret `yaml:"headers"`
	Timeout  Duration          `yaml:"timeout"`
	Attempts int               `yaml:"attempts"`
	// settle time; 0 = a tenth of the setting "lease", at least 2 s
	Settle  Duration `yaml:"settle"`
	Backoff Backoff  `yaml:"backoff"`
	// Patience is a time. After the CMS has refused all messages for this time, each further
	// refusal counts as an attempt.
	Patience Duration `yaml:"patience"`
	// RetryFor is the least time between the first and the last of the attempts that make a message
	// dead without a verdict of the CMS.
	RetryFor Duration `yaml:"retryFor"`
	// Brake is the number of keys whose messages die of the same rejection until further ones wait.
	Brake int `yaml:"brake"`

	// largest rate of this instance's attempts, over all lanes
	Rate Rate `yaml:"rate"`
	// largest number of this instance's attempts at a time; 0 = one per lane
	MaxConcurrent int `yaml:"maxConcurrent"`

	SignIn SignIn       `yaml:"signIn"`
	TLS    signin.TLS   `yaml:"tls"`
	On     steps.Source `yaml:"on"` // rules for the answers to all steps
	// name of a header with a delay, beside Retry-After; "" = none
	RetryAfter string `yaml:"retryAfter"`
	// bytes read of an answer; 0 = 4 MiB, or 64 KiB without steps
	MaxAnswer ByteSize `yaml:"maxAnswer"`

	// Instances names the instances that deliver. The value "any" means all of them. The value
	// "process" means only those to which the host gives tickets.
	Instances string `yaml:"instances"`
}

// The values of delivery.instances.
const (
	AnyInstance     = "any"
	ProcessInstance = "process"
)

// DeliversByTicket reports whether an instance drains only the lanes that its tickets name.
func (s *Settings) DeliversByTicket() bool { return s.Delivery.Instances == ProcessInstance }

// Schedules limits all schedules together.
type Schedules struct {
	Max  int  `yaml:"max"`  // largest number of schedules
	Rate Rate `yaml:"rate"` // largest rate of messages, over all schedules that are not paused
}

func (s Schedules) Limits() recur.Limits {
	return recur.Limits{Count: s.Max, Rate: 1 / s.Rate.Interval().Seconds()}
}

// Poll configures weir poll. The flags of the command take precedence over these settings.
type Poll struct {
	Period    Duration `yaml:"period"`
	Idle      Duration `yaml:"idle"`
	Estimate  Duration `yaml:"estimate"`
	Tolerance float64  `yaml:"tolerance"`
}

// Default returns the settings of an empty weir.yaml.
func Default() Settings {
	day := Duration(24 * time.Hour)
	return Settings{
		Lanes: 1, OpenAPI: true, Lease: Duration(30 * time.Second),
		TicketDelay: DelayRange{0, Duration(10 * time.Second)},
		MaxBody:     1 << 20, Retention: 7 * day, DeadRetention: 90 * day,
		AuditRetention: 365 * day,
		Delivery: Delivery{Method: "POST", Instances: AnyInstance,
			Timeout:  Duration(30 * time.Second),
			Attempts: 5, Patience: day, RetryFor: Duration(15 * time.Minute), Brake: 5,
			Backoff: Backoff{DelayRange: DelayRange{Duration(time.Second),
				Duration(5 * time.Minute)}}},
		Schedules: Schedules{Max: 500, Rate: Rate{Count: 10, Per: time.Second}},
		Poll: Poll{Period: Duration(time.Minute), Idle: Duration(5 * time.Second),
			Estimate: Duration(2 * time.Second), Tolerance: 5},
	}
}

// ErrNoPrefix is the error of a hosted process without WEIR_PREFIX. The host needs the variable to
// find the queues of the functions "process", "poison" and "inbox". Without the variable the host
// would not run these functions. Then only the sweep would find messages that an ended instance
// left.
var ErrNoPrefix = errors.New("WEIR_PREFIX is not set, and the host needs it to find the queues: " +
	"set the app setting WEIR_PREFIX, for example to weir")

// Load reads the environment and weir.yaml. The error has a line for each problem.
func Load(env func(string) string) (Settings, error) {
	s := Default()
	s.Prefix = cmp.Or(env("WEIR_PREFIX"), "weir")
	var problems []error
	if env("WEIR_PREFIX") == "" && IsHosted(env) {
		problems = append(problems, ErrNoPrefix)
	}

	if err := s.ReadStorage(env); err != nil {
		problems = append(problems, storageProblem{err})
	}

	path := Path(env)
	s.FileName = filepath.Base(path)
	text, err := ReadFile(path)
	if err != nil {
		return s, errors.Join(append(problems, err)...)
	}

	missing, unknown, err := s.decodeYAML(text, env)
	for _, name := range missing {
		problems = append(problems,
			fmt.Errorf("%s names ${%s}, which is not set in the environment", s.FileName, name))
	}

	if err != nil {
		problems = append(problems, s.expander.hideValues(fmt.Errorf("%s: %w", s.FileName, err)))
	}

	for _, key := range unknown {
		problems = append(problems, s.expander.hideValues(fmt.Errorf("%s: %w", s.FileName, key)))
	}

	if err != nil {
		return s, errors.Join(problems...)
	}

	s.readKeys(env)

	return s, s.AddPositions(errors.Join(append(problems, s.checkValues()...)...))
}

// ReadFile reads weir.yaml.
func ReadFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf(
			"%s cannot be read: %w; WEIR_CONFIG, or --config of weir serve, names the file of the "+
				"settings", filepath.Base(path), err)
	}
	return string(text), nil
}

// Path returns the path of weir.yaml, which WEIR_CONFIG can set. A relative path begins at
// the folder of host.json.
func Path(env func(string) string) string {
	path := cmp.Or(env("WEIR_CONFIG"), "weir.yaml")
	if !filepath.IsAbs(path) {
		path = filepath.Join(env("FUNCTIONS_APP_ROOT_PATH"), path)
	}
	return path
}

// checkValues returns an error for each value that is out of its limits or contradicts another
// value.
func (s *Settings) checkValues() []error {
	var problems []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	must(s.Lanes >= 1 && s.Lanes <= epochs.MaxLanes, "lanes is %d and must be 1 to %d", s.Lanes,
		epochs.MaxLanes)
	must(s.Lease >= Duration(15*time.Second) && s.Lease <= Duration(time.Minute),
		"lease is %s and must be 15s to 60s", s.Lease)
	must(s.TicketDelay.Min >= 0 && s.TicketDelay.Min <= s.TicketDelay.Max &&
		s.TicketDelay.Max <= Duration(time.Hour), "ticketDelay must have 0s ≤ min ≤ max ≤ 1h")
	must(s.MaxBody >= 1 && s.MaxBody <= 100<<20,
		"maxBody is %d and must be 1 byte to 100MiB, which is what the Functions host takes",
		s.MaxBody)
	must(s.Retention >= Duration(time.Hour), "retention is %s and must be at least 1h", s.Retention)
	must(s.DeadRetention >= s.Retention, "deadRetention is %s and must be at least retention (%s)",
		s.DeadRetention, s.Retention)
	must(s.AuditRetention >= Duration(24*time.Hour), "auditRetention is %s and must be at least 1d",
		s.AuditRetention)
	must(s.Schedules.Max >= 1 &&
		s.Schedules.Max <= 10_000, "schedules.max is %d and must be 1 to 10000", s.Schedules.Max)
	s.Delivery.checkValues(must)
	s.checkRetryFor(must)
	if _, err := calendar.New(s.Calendar); err != nil {
		problems = append(problems, prefixLines("calendar: ", err)...)
	}

	if err := s.PollConfig().Check(); err != nil {
		problems = append(problems, prefixLines("poll.", err)...)
	}

	s.Intake.RabbitMQ.checkValues(s.ContractNames(), must)
	s.Intake.Files.checkValues(must)
	s.checkUpstreams(must)
	problems = append(problems, s.checkDoor()...)

	return append(problems, s.checkNotify()...)
}

// checkValues calls the function "must" for each rule of the delivery settings.
func (d *Delivery) checkValues(must func(ok bool, format string, args ...any)) {
	must(d.URL != "", "delivery.url is missing: the address of the CMS")
	must(d.Method == "POST" || d.Method == "PUT" || d.Method == "PATCH",
		"delivery.method is %q and must be POST, PUT or PATCH", d.Method)
	must(d.Timeout > 0 && d.Timeout <= Duration(time.Hour),
		"delivery.timeout is %s and must be over 0s and at most 1h", d.Timeout)
	must(d.Attempts >= 1 && d.Attempts <= 1000, "delivery.attempts is %d and must be 1 to 1000",
		d.Attempts)
	must(d.Settle >= 0 && d.Settle <= Duration(time.Hour),
		"delivery.settle is %s and must be 0s to 1h", d.Settle)
	must(d.Patience >= Duration(time.Minute) && d.Patience <= Duration(90*24*time.Hour),
		"delivery.patience is %s and must be 1m to 90d", d.Patience)
	must(d.Brake >= 0 && d.Brake <= 1000,
		"delivery.brake is %d and must be 0 (off) to 1000", d.Brake)
	must(d.MaxConcurrent >= 0 && d.MaxConcurrent <= 1024,
		"delivery.maxConcurrent is %d and must be 0 (one for each lane) to 1024", d.MaxConcurrent)
	must(d.Instances == AnyInstance || d.Instances == ProcessInstance,
		"delivery.instances is %q and must be %s or %s", d.Instances, AnyInstance, ProcessInstance)
	must(d.RetryAfter == "" || signin.IsHeaderName(d.RetryAfter),
		"delivery.retryAfter is %q and must be the name of a header, such as X-RateLimit-Reset",
		d.RetryAfter)
	must(d.MaxAnswer >= 0 && d.MaxAnswer <= 64<<20,
		"delivery.maxAnswer is %d and must be at most 64MiB", d.MaxAnswer)

	if err := d.Backoff.checkValues(); err != nil {
		must(false, "%w", err)
	}
}

// maxRetryFor bounds delivery.retryFor, so that each message becomes final.
const maxRetryFor = Duration(90 * 24 * time.Hour)

// checkRetryFor calls the function "must" for the least time of attempts, of delivery and of each
// contract.
func (s *Settings) checkRetryFor(must func(ok bool, format string, args ...any)) {
	check := func(path string, d Duration) {
		must(d >= 0 && d <= maxRetryFor, "%s is %s and must be 0s to 90d", path, d)
	}
	check("delivery.retryFor", s.Delivery.RetryFor)

	for i, c := range s.Contracts {
		if c.RetryFor != nil {
			check(fmt.Sprintf("contracts[%d].retryFor", i), *c.RetryFor)
		}
	}
}

// RetryFor returns the least time for which a contract's messages are tried: that of the contract,
// else that of delivery. A contract that is missing has no requests, and so no attempts.
func (s *Settings) RetryFor() func(contract string) time.Duration {
	byContract := map[string]time.Duration{}
	for _, c := range s.Contracts {
		if c.RetryFor != nil {
			byContract[c.Name] = time.Duration(*c.RetryFor)
		}
	}

	return func(contract string) time.Duration {
		if d, ok := byContract[contract]; ok {
			return d
		}
		return time.Duration(s.Delivery.RetryFor)
	}
}

// prefixLines returns one error for each line of err, with the prefix in front of the line.
func prefixLines(prefix string, err error) (problems []error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		problems = append(problems, errors.New(prefix+line))
	}
	return problems
}

// SettleTime returns the settle time: delivery.settle, or lease.Margin if that setting is 0.
func (s *Settings) SettleTime() time.Duration {
	if s.Delivery.Settle > 0 {
		return time.Duration(s.Delivery.Settle)
	}
	return lease.Margin(time.Duration(s.Lease))
}

func (s *Settings) BackoffConfig() drain.Backoff {
	b := drain.Backoff{Min: time.Duration(s.Delivery.Backoff.Min),
		Max: time.Duration(s.Delivery.Backoff.Max)}
	for _, step := range s.Delivery.Backoff.steps {
		b.Steps = append(b.Steps, time.Duration(step))
	}
	return b
}

func (s *Settings) PollConfig() poll.Config {
	return poll.Config{Period: time.Duration(s.Poll.Period), Idle: time.Duration(s.Poll.Idle),
		Estimate: time.Duration(s.Poll.Estimate), Tolerance: s.Poll.Tolerance,
		Timeout: time.Duration(s.Delivery.Timeout)}
}

func (s *Settings) CMSHeaders() map[string]string {
	out := map[string]string{}
	for name, value := range s.Delivery.Headers {
		out[name] = string(value)
	}
	return out
}

func (s *Settings) ContractNames() (names []string) {
	for _, c := range s.Contracts {
		names = append(names, c.Name)
	}
	return names
}

// ShownNames returns the sorted names of the values that contracts show.
func (s *Settings) ShownNames() (names []string) {
	for _, c := range s.Contracts {
		for _, f := range c.Show {
			names = append(names, f.Name)
		}
	}

	slices.Sort(names)
	return slices.Compact(names)
}

// SupersedingContracts returns the names of the contracts with the setting "supersede".
func (s *Settings) SupersedingContracts() (names []string) {
	for _, c := range s.Contracts {
		if c.Supersede {
			names = append(names, c.Name)
		}
	}
	return names
}
