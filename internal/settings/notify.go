package settings

import (
	"fmt"
	"time"

	"weir/internal/notify"
	"weir/internal/weir"
)

// Receiver describes a receiver of events. In the comments of its fields, message.dead,
// lane.paused and lane.behind are the names of events.
type Receiver struct {
	URL    string   `yaml:"url"`
	Secret Secret   `yaml:"secret"`
	Events []string `yaml:"events"`
	// the receiver gets message.dead only for these contracts; nil = all
	Contracts []string `yaml:"contracts"`
	// length of a pause that causes lane.paused; nil = defaultPausedFor
	PausedFor *Duration `yaml:"pausedFor"`
	// age of a message that causes lane.behind; 0 = defaultBehindBy
	BehindBy Duration `yaml:"behindBy"`
	// addresses of internal networks, and http, are allowed
	AllowPrivate bool `yaml:"allowPrivate"`
}

// Callbacks has the rules for the callbacks of messages.
type Callbacks struct {
	AllowedHosts []CallbackHost `yaml:"allowedHosts"`
	AllowPrivate bool           `yaml:"allowPrivate"`
	Secret       Secret         `yaml:"secret"` // for the hosts that have no secret of their own
}

// The defaults of Receiver.
const (
	defaultPausedFor = Duration(10 * time.Minute)
	defaultBehindBy  = Duration(15 * time.Minute)
)

// EventReceivers returns the receivers of events, and the problems of their secrets.
func (s *Settings) EventReceivers() (list []notify.Receiver, problems []error) {
	for i, r := range s.Notify {
		key, err := notify.ParseSecret(string(r.Secret))
		if err != nil {
			problems = append(problems, weir.NewSettingProblem(fmt.Sprintf("notify[%d].secret", i), "%v", err))
		}

		n := notify.Receiver{URL: r.URL, Secret: key, Events: r.Events, Contracts: r.Contracts,
			AllowPrivate: r.AllowPrivate, PausedFor: time.Duration(defaultPausedFor),
			BehindBy: time.Duration(defaultBehindBy)}
		if r.PausedFor != nil {
			n.PausedFor = time.Duration(*r.PausedFor)
		}

		if r.BehindBy != 0 {
			n.BehindBy = time.Duration(r.BehindBy)
		}

		list = append(list, n)
	}

	return list, problems
}

// checkNotify checks the settings "notify" and "callbacks".
func (s *Settings) checkNotify(c *checker) {
	receivers, ofReceivers := s.EventReceivers()
	callbacks, ofCallbacks := s.CallbackRules()
	c.add(ofReceivers...)
	c.add(ofCallbacks...)
	for _, p := range notify.Check(receivers, callbacks, s.ContractNames()) {
		c.add(p)
	}
}
