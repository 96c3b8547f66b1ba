package drain

import (
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
)

// If the settings have no contract with the name that a message is stored with, the holder does not
// know the requests that write the message: the contract's steps, success rule and redaction are
// gone with it. So the holder sends no request for such a message. The message waits in the queue
// of its key, as behind a pause of the key, and all other keys go on:
//
//   - If a process whose settings have the contract looks at the lane, the lane has work
//     (lane.Tail.Missing), and that process sends the message. Contracts are read once, at the
//     start of a process.
//   - After delivery.patience the message is dead. An operator can replay it when the contract is
//     back.

// missingContracts finds the messages whose contracts are missing, and the times until which they
// wait.
type missingContracts struct {
	laneScope
	patience  time.Duration
	counted   []lane.MissingContract // result of the last count, for tail
	countedAt time.Time              // zero = the next call of list counts
}

// countInterval is the time between two counts for tail while no further contract is missing. A
// count visits all blocks, and each change of a row writes tail.
const countInterval = time.Second

// reasonMissingContract is the reason of a message that is dead because its contract is missing.
const reasonMissingContract = "its contract has been missing from the settings for longer than delivery.patience: " +
	"put the contract back, or list its name under formerly in the contract that replaces it, and replay the message"

func (m *missingContracts) isMissing(e *lane.Entry) bool {
	return !m.store.Contracts.Has(e.Message.Contract)
}

// hold makes a block wait for the contract of e, its first message, and reports whether the message
// still waits. It returns false if the time is over.
//
// The time begins when a holder first misses the contract, so that an error in the settings does
// not end messages at once that have waited for other reasons. For a message that was accepted, due
// or replayed later, it begins then.
func (m *missingContracts) hold(k *keyState, e *lane.Entry) bool {
	now, name, since := m.now(), e.Message.Contract, k.MissingSince
	if k.MissingContract != name || since.After(now) {
		since = storedTime(now)
		m.noteMissing(e)
	}

	k.waitForContract(name, since, clock.Later(since, e.WaitingSince()).Add(m.patience))
	return k.NextAt.After(now)
}

// adopt adapts a stored block to the settings of this process. If they have the block's contract,
// the block is tried at once. Otherwise the block keeps its time, or a shorter one if
// delivery.patience was shortened. If patience was made longer, hold prolongs the time when it
// comes.
func (m *missingContracts) adopt(k *keyState) {
	now, since := m.now(), k.MissingSince
	if m.store.Contracts.Has(k.MissingContract) {
		k.endWaits()
		k.waitUntil(now)
		return
	}

	if since.After(now) { // the clock of the last holder was wrong
		since = storedTime(now)
	}

	k.waitForContract(k.MissingContract, since, clock.Earlier(k.NextAt, since.Add(m.patience)))
}

// noteMissing makes the next change write a contract into tail that is not there yet. Otherwise no
// process would look for the contract after a crash.
func (m *missingContracts) noteMissing(e *lane.Entry) {
	name := e.Message.Contract
	if slices.ContainsFunc(m.counted,
		func(c lane.MissingContract) bool { return c.Contract == name }) {
		return
	}

	m.countedAt = time.Time{}
	m.log.Warn("drain: contract missing, its messages wait", "subject", name, "fence", m.fence,
		"message_id", e.Message.Public().String())
}

// list returns the missing contracts for which messages wait, sorted by name. The numbers can be a
// second old.
func (m *missingContracts) list(keys *keyStates) []lane.MissingContract {
	if now := m.now(); m.countedAt.IsZero() || now.Sub(m.countedAt).Abs() >= countInterval {
		m.counted, m.countedAt = countMissing(keys, now), now
	}
	return m.counted
}

// countMissing leaves out a block whose time has come: its first message is looked at anew.
func countMissing(keys *keyStates, now time.Time) []lane.MissingContract {
	byName, hashes := map[string]lane.MissingContract{}, map[[2]string]bool{}
	for _, k := range keys.byID {
		name := k.MissingContract
		if name == "" || !k.NextAt.After(now) {
			continue
		}

		c, isKnown := byName[name]
		if !isKnown {
			c = lane.MissingContract{Contract: name, Since: k.MissingSince}
		}

		if key := [2]string{name, k.KeyHash}; !hashes[key] {
			hashes[key] = true
			c.Keys++
		}

		c.Messages += k.HeldCount
		c.Since = clock.Earlier(c.Since, k.MissingSince)
		byName[name] = c
	}

	return slices.SortedFunc(maps.Values(byName), func(a, b lane.MissingContract) int {
		return strings.Compare(a.Contract, b.Contract)
	})
}
