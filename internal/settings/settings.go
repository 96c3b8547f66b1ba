package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/calendar"
	"weir/internal/lane/epochs"
	"weir/internal/poll"
	"weir/internal/recur"
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

// Log configures the log.
type Log struct {
	Level LogLevel `yaml:"level"`
}

// Schedules limits all schedules together.
type Schedules struct {
	Max  int  `yaml:"max"`  // largest number of schedules
	Rate Rate `yaml:"rate"` // largest rate of messages, over all schedules that are not paused
}

// Limits returns the limits of all schedules together.
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
	c := &checker{}
	if env("WEIR_PREFIX") == "" && IsHosted(env) {
		c.add(ErrNoPrefix)
	}

	if err := s.ReadStorage(env); err != nil {
		c.add(storageProblem{err})
	}

	path := Path(env)
	s.FileName = filepath.Base(path)
	text, err := ReadFile(path)
	if err != nil {
		return s, errors.Join(append(c.problems, err)...)
	}

	missing, unknown, err := s.decodeYAML(text, env)
	for _, name := range missing {
		c.add(fmt.Errorf("%s names ${%s}, which is not set in the environment", s.FileName, name))
	}

	if err != nil {
		c.add(err)
	}

	c.add(unknown...)
	if err == nil {
		s.readKeys(env)
		s.checkValues(c)
	}

	return s, s.Locate(errors.Join(c.problems...))
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

// checkValues adds a problem for each value that is out of its limits or contradicts another value.
func (s *Settings) checkValues(c *checker) {
	c.must(s.Lanes >= 1 && s.Lanes <= epochs.MaxLanes, "lanes", "is %d and must be 1 to %d", s.Lanes,
		epochs.MaxLanes)
	c.must(s.Lease >= Duration(15*time.Second) && s.Lease <= Duration(time.Minute), "lease",
		"is %s and must be 15s to 60s", s.Lease)
	c.must(s.TicketDelay.Min >= 0 && s.TicketDelay.Min <= s.TicketDelay.Max &&
		s.TicketDelay.Max <= Duration(time.Hour), "ticketDelay", "must have 0s ≤ min ≤ max ≤ 1h")
	c.must(s.MaxBody >= 1 && s.MaxBody <= 100<<20, "maxBody",
		"is %d and must be 1 byte to 100MiB, which is what the Functions host takes", s.MaxBody)
	c.must(s.Retention >= Duration(time.Hour), "retention", "is %s and must be at least 1h",
		s.Retention)
	c.must(s.DeadRetention >= s.Retention, "deadRetention",
		"is %s and must be at least retention (%s)", s.DeadRetention, s.Retention)
	c.must(s.AuditRetention >= Duration(24*time.Hour), "auditRetention",
		"is %s and must be at least 1d", s.AuditRetention)
	c.must(s.Schedules.Max >= 1 && s.Schedules.Max <= 10_000, "schedules.max",
		"is %d and must be 1 to 10000", s.Schedules.Max)

	s.Delivery.checkValues(c, "delivery")
	for i, one := range s.Contracts {
		if one.RetryFor != nil {
			checkRetryFor(c, fmt.Sprintf("contracts[%d].retryFor", i), *one.RetryFor)
		}
	}

	_, err := calendar.New(s.Calendar)
	c.addLines("calendar", err)
	c.addWithin("poll.", s.PollConfig().Check())
	s.Intake.RabbitMQ.checkValues(c, s.ContractNames())
	s.Intake.Files.checkValues(c)
	s.checkUpstreams(c)
	s.checkDoor(c)
	s.checkNotify(c)
}

// PollConfig returns the configuration of weir poll.
func (s *Settings) PollConfig() poll.Config {
	return poll.Config{Period: time.Duration(s.Poll.Period), Idle: time.Duration(s.Poll.Idle),
		Estimate: time.Duration(s.Poll.Estimate), Tolerance: s.Poll.Tolerance,
		Timeout: time.Duration(s.Delivery.Timeout)}
}

// ContractNames returns the names of the contracts, in the order of weir.yaml.
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
