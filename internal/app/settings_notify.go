package app

import (
	"fmt"
	"time"

	"weir/internal/notify"
)

// receiverSettings describes a receiver of events.
type receiverSettings struct {
	URL          string    `yaml:"url"`
	Secret       secret    `yaml:"secret"`
	Events       []string  `yaml:"events"`
	Contracts    []string  `yaml:"contracts"`    // the receiver gets message.dead of these only; nil = all
	PausedFor    *duration `yaml:"pausedFor"`    // pause of a lane until lane.paused; nil = defaultPausedFor; 0s = none
	BehindBy     duration  `yaml:"behindBy"`     // age of the oldest message until lane.behind; 0 = defaultBehindBy
	AllowPrivate bool      `yaml:"allowPrivate"` // private addresses, and http, are allowed
}

// callbackSettings has the rules for the callbacks of messages.
type callbackSettings struct {
	AllowedHosts []callbackHost `yaml:"allowedHosts"`
	AllowPrivate bool           `yaml:"allowPrivate"`
	Secret       secret         `yaml:"secret"` // secret for the hosts that have no secret of their own
}

// Defaults of a receiver.
const (
	defaultPausedFor = duration(10 * time.Minute)
	defaultBehindBy  = duration(15 * time.Minute)
)

// eventReceivers returns the receivers of events, and the problems with their secrets.
func (s *Settings) eventReceivers() (list []notify.Receiver, problems []error) {
	for i, r := range s.Notify {
		key, err := notify.ParseSecret(string(r.Secret))
		if err != nil {
			problems = append(problems, fmt.Errorf("notify[%d].secret: %w", i, err))
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

// checkNotify returns the problems of the settings "notify" and "callbacks".
func (s *Settings) checkNotify() []error {
	receivers, problems := s.eventReceivers()
	callbacks, more := s.callbackRules()
	problems = append(problems, more...)
	return append(problems, notify.Check(receivers, callbacks, s.contractNames())...)
}
