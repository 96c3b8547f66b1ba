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

// Events that receivers of the settings can get. A callback gets the event of its message's end.
const (
	MessageDead    = "message.dead"
	LanePaused     = "lane.paused"
	LaneResumed    = "lane.resumed"
	LaneBehind     = "lane.behind"
	LaneCaughtUp   = "lane.caught_up"
	ReplayFinished = "replay.finished"
)

// Events are the events that a receiver can choose. A receiver of lane.paused or lane.behind also gets the
// event of the end of the pause or backlog.
var Events = []string{MessageDead, LanePaused, LaneBehind, ReplayFinished}

var allEvents = []string{
	MessageDead, "message." + string(weir.Delivered), "message." + string(weir.Cancelled), "message." +
		string(weir.Superseded), "message." + string(weir.Discarded),
	LanePaused, LaneResumed, LaneBehind, LaneCaughtUp, ReplayFinished,
}

// Receiver is a webhook receiver of the settings.
type Receiver struct {
	URL          string
	Secret       Secret
	Events       []string
	Contracts    []string      // contracts whose message.dead the receiver gets; empty = all contracts
	PausedFor    time.Duration // time for which a lane is paused before the receiver gets lane.paused
	BehindBy     time.Duration // age of a lane's oldest waiting message from which the receiver gets lane.behind
	AllowPrivate bool          // allow private addresses, and http
}

// maxReceivers bounds the rows that a dead message adds to a transaction.
const maxReceivers = 10

// rowName returns the receiver's name in rows. It is a hash of the address. So waiting events still find their
// receiver when its other settings change.
func (r Receiver) rowName() string {
	sum := sha256.Sum256([]byte(r.URL))
	return hex.EncodeToString(sum[:6])
}

func (r Receiver) wantsEvent(event string) bool { return slices.Contains(r.Events, event) }

func (r Receiver) wantsContract(name string) bool {
	return len(r.Contracts) == 0 || slices.Contains(r.Contracts, name)
}

// Check returns every problem of receivers and callbacks, except the problems of secrets, which ParseSecret
// returns. contracts are the names of the existing contracts.
func Check(receivers []Receiver, c Callbacks, contracts []string) []error {
	problems := c.findProblems()
	if len(receivers) > maxReceivers {
		problems = append(problems, fmt.Errorf("notify has %d receivers; the most are %d", len(receivers),
			maxReceivers))
	}
	seen := map[string]bool{}
	for i, r := range receivers {
		for _, err := range r.findProblems(contracts) {
			problems = append(problems, fmt.Errorf("notify[%d].%w", i, err))
		}
		if seen[r.URL] {
			problems = append(problems, fmt.Errorf("notify[%d].url: there is a receiver with this address already", i))
		}
		seen[r.URL] = true
	}
	return problems
}

func (r Receiver) findProblems(contracts []string) []error {
	var problems []error
	if _, err := parseAddress(r.URL, r.AllowPrivate); err != nil {
		problems = append(problems, fmt.Errorf("url: %w", err))
	}
	if len(r.Events) == 0 {
		problems = append(problems, fmt.Errorf("events is empty: choose from %v", Events))
	}
	for _, e := range r.Events {
		if !slices.Contains(Events, e) {
			problems = append(problems, fmt.Errorf("events: there is no event %q; choose from %v", e, Events))
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
