package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/weir"
)

// What receivers may be told of, beside the ends of messages with a callback.
const (
	MessageDead    = "message.dead"
	LanePaused     = "lane.paused"
	LaneResumed    = "lane.resumed"
	LaneBehind     = "lane.behind"
	LaneCaughtUp   = "lane.caught_up"
	ReplayFinished = "replay.finished"
)

// Events are those that a receiver can choose. Who is told that a lane is paused or behind
// is told of the end of it, too.
var Events = []string{MessageDead, LanePaused, LaneBehind, ReplayFinished}

// allEvents are all there are.
var allEvents = []string{
	MessageDead, "message." + string(weir.Delivered), "message." + string(weir.Cancelled), "message." + string(weir.Superseded),
	LanePaused, LaneResumed, LaneBehind, LaneCaughtUp, ReplayFinished,
}

// Receiver is somebody the settings name.
type Receiver struct {
	URL          string
	Secret       Secret
	Events       []string
	Contracts    []string      // of message.dead; nil = all
	PausedFor    time.Duration // how long a lane must be paused
	BehindBy     time.Duration // how old the oldest of what waits must be
	AllowPrivate bool          // private addresses, and http
}

// maxReceivers bounds what a death adds to a transaction.
const maxReceivers = 10

// name tells receivers apart in rows. It is made of the address, so that mail keeps its
// receiver where the settings change around it.
func (r Receiver) name() string {
	sum := sha256.Sum256([]byte(r.URL))
	return hex.EncodeToString(sum[:6])
}

func (r Receiver) wants(event string) bool { return slices.Contains(r.Events, event) }

func (r Receiver) wantsContract(name string) bool {
	return len(r.Contracts) == 0 || slices.Contains(r.Contracts, name)
}

// Check gives every problem of receivers and callbacks but those of secrets, which
// ParseSecret finds. contracts are those that there are.
func Check(receivers []Receiver, c Callbacks, contracts []string) []error {
	problems := c.problems()
	if len(receivers) > maxReceivers {
		problems = append(problems, fmt.Errorf("notify has %d receivers, and may have %d", len(receivers), maxReceivers))
	}
	seen := map[string]bool{}
	for i, r := range receivers {
		for _, err := range r.problems(contracts) {
			problems = append(problems, fmt.Errorf("notify[%d].%w", i, err))
		}
		if seen[r.URL] {
			problems = append(problems, fmt.Errorf("notify[%d].url: there is a receiver with this address already", i))
		}
		seen[r.URL] = true
	}
	return problems
}

func (r Receiver) problems(contracts []string) []error {
	var problems []error
	if _, err := parseAddress(r.URL, r.AllowPrivate); err != nil {
		problems = append(problems, fmt.Errorf("url: %w", err))
	}
	if len(r.Events) == 0 {
		problems = append(problems, fmt.Errorf("events is empty: choose of %v", Events))
	}
	for _, e := range r.Events {
		if !slices.Contains(Events, e) {
			problems = append(problems, fmt.Errorf("events: there is no event %q; choose of %v", e, Events))
		}
	}
	for _, name := range r.Contracts {
		if !slices.Contains(contracts, name) {
			problems = append(problems, fmt.Errorf("contracts: there is no contract %q", name))
		}
	}
	if r.PausedFor < 0 || r.BehindBy < time.Minute {
		problems = append(problems, errors.New("pausedFor must be at least 0s, and behindBy at least 1m"))
	}
	return problems
}
