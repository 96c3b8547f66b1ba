package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"weir/internal/weir"
)

// Types of the events that receivers in the settings can get. A callback gets an event only when
// its message becomes final.
const (
	MessageDead  = "message.dead"
	LanePaused   = "lane.paused"
	LaneResumed  = "lane.resumed"
	LaneBehind   = "lane.behind"
	LaneCaughtUp = "lane.caught_up"
	// ContractRejected means that further messages of a contract wait, because the CMS has rejected
	// those of several keys alike; see lane.Brake.
	ContractRejected = "contract.rejected"
	ReplayFinished   = "replay.finished"
)

// Events are the event types that a receiver can choose in the settings. A receiver with
// lane.paused also gets lane.resumed. A receiver with lane.behind also gets lane.caught_up.
var Events = []string{MessageDead, LanePaused, LaneBehind, ContractRejected, ReplayFinished}

var allEvents = []string{
	MessageDead, "message." + string(weir.Delivered), "message." + string(weir.Cancelled),
	"message." +
		string(weir.Superseded), "message." + string(weir.Discarded),
	LanePaused, LaneResumed, LaneBehind, LaneCaughtUp, ContractRejected, ReplayFinished,
}

// Receiver has the settings of a receiver of events.
type Receiver struct {
	URL    string
	Secret Secret
	Events []string // elements of the variable Events
	// contracts whose dead messages the receiver is told of; empty = all contracts
	Contracts []string
	// the receiver gets lane.paused after a lane was paused for this time
	PausedFor time.Duration
	// the receiver gets lane.behind if a message of a lane has waited for this time
	BehindBy     time.Duration
	AllowPrivate bool // private addresses and http are allowed
}

// maxReceivers bounds the rows that a dead message adds to a transaction.
const maxReceivers = 10

// rowName returns the receiver's name in the rows of outboxes. The name depends only on the
// address. So a waiting event still finds the receiver after a change of the receiver's other
// settings.
func (r Receiver) rowName() string {
	sum := sha256.Sum256([]byte(r.URL))
	return hex.EncodeToString(sum[:6])
}

func (r Receiver) wantsEvent(event string) bool { return slices.Contains(r.Events, event) }

func (r Receiver) wantsContract(name string) bool {
	return len(r.Contracts) == 0 || slices.Contains(r.Contracts, name)
}

// Check returns all problems in the settings of receivers and callbacks. It does not check secrets:
// ParseSecret does. The argument "contracts" has the names of all contracts.
func Check(receivers []Receiver, c Callbacks, contracts []string) []*weir.SettingProblem {
	problems := c.findProblems()
	if len(receivers) > maxReceivers {
		problems = append(problems, weir.NewSettingProblem("notify",
			"has %d receivers; the most are %d", len(receivers), maxReceivers))
	}

	seen := map[string]bool{}
	for i, r := range receivers {
		prefix := fmt.Sprintf("notify[%d].", i)
		for _, p := range r.findProblems(contracts) {
			problems = append(problems, p.Within(prefix))
		}

		if seen[r.URL] {
			problems = append(problems, weir.NewSettingProblem(prefix+"url",
				"there is a receiver with this address already"))
		}

		seen[r.URL] = true
	}

	return problems
}

func (r Receiver) findProblems(contracts []string) (problems []*weir.SettingProblem) {
	addProblem := func(path, format string, args ...any) {
		problems = append(problems, weir.NewSettingProblem(path, format, args...))
	}

	if _, err := parseAddress(r.URL, r.AllowPrivate); err != nil {
		addProblem("url", "%v", err)
	}

	if len(r.Events) == 0 {
		addProblem("events", "is empty: choose from %v", Events)
	}

	for i, e := range r.Events {
		if !slices.Contains(Events, e) {
			addProblem(fmt.Sprintf("events[%d]", i), "there is no event %q; choose from %v", e, Events)
		}
	}

	for i, name := range r.Contracts {
		if !slices.Contains(contracts, name) {
			addProblem(fmt.Sprintf("contracts[%d]", i), "there is no contract %q", name)
		}
	}

	if r.PausedFor < 0 || r.BehindBy < time.Minute {
		addProblem("pausedFor", "must be at least 0s, and behindBy at least 1m")
	}

	return problems
}
