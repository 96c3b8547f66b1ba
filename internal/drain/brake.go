package drain

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/weir"
)

// A changed content type, or a mistake in a recipe, makes the CMS reject every message of a
// contract. The same rejection of several keys, with no delivery of the contract between, therefore
// closes the brake of that rejection: further messages that the CMS rejects so are refused, not
// dead.
//
//   - The lanes of a process share the brakes. Rejections are the same if their fingerprint is
//     (weir.Fingerprint): contract, status and reason, which begins with the name of the step.
//   - Each message is still sent once, because the CMS may take it. If it is refused, it waits in
//     the queue of its key, like a message whose contract is missing. All other messages go on.
//   - One refused message at a time of each lane is the probe: it is sent again after a while. Its
//     rejection does not count.
//   - A delivery of the contract, or an operator who resumes the lane, opens the contract's brakes.
//     All refused messages are then sent again.
//   - After delivery.patience the rejection of a refused message makes it dead, because a message
//     must become final even if the CMS never takes one.
//
// Tail names the brakes of the lane's refused messages, so that a brake outlasts its holder. A
// process that has held no such lane does not know them, and counts for itself.

// probeShare bounds the time between two probes of a lane: the time since the brake was closed,
// divided by probeShare.
const probeShare = 8

// brakes has the rejections that the lanes of a process share. It is safe for concurrent use.
type brakes struct {
	limit    int // see Config.Brake
	patience time.Duration
	backoff  Backoff

	mu         sync.Mutex
	byContract map[string]map[string]*brake // by contract and fingerprint
	// by contract: the last delivery, or the last resumption
	openedAt   map[string]time.Time
	generation int // rises when closed brakes are opened
}

// brake has the rejections with one fingerprint since the contract's last delivery.
type brake struct {
	keys     map[string]bool // hashes of the keys whose messages it has made dead
	closedAt time.Time       // zero = it is open
	lane.Brake
}

func newBrakes(limit int, patience time.Duration, b Backoff) *brakes {
	if patience == 0 {
		patience = patienceDefault
	}
	return &brakes{limit: limit, patience: patience, backoff: b,
		byContract: map[string]map[string]*brake{}, openedAt: map[string]time.Time{}}
}

// brakeVerdict is the effect of a brake on a rejected message.
type brakeVerdict int

const (
	makesDead   brakeVerdict = iota // the message is dead
	closesBrake                     // the message is dead, and further messages wait
	makesWait                       // the message waits, because the brake is closed
)

// judgeRejection counts a rejection, and returns its effect on the message.
func (b *brakes) judgeRejection(e *lane.Entry, r weir.Result, now time.Time) brakeVerdict {
	if b.limit == 0 || r.Unsent {
		return makesDead
	}

	contract := e.Message.Contract
	fingerprint, reason := weir.Fingerprint(contract, r.Status, r.Reason)
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.findOrAdd(contract, fingerprint)
	switch {
	case !found.closedAt.IsZero() &&
		now.Sub(clock.Later(found.closedAt, e.WaitingSince())) < b.patience:
		return makesWait
	case !found.closedAt.IsZero():
		return makesDead
	}

	found.keys[e.KeyHash()] = true
	if len(found.keys) < b.limit {
		return makesDead
	}

	found.closedAt = now
	found.Brake = lane.Brake{Contract: contract, Fingerprint: fingerprint, CMSStatus: r.Status,
		Reason: reason, Since: storedTime(now)}

	return closesBrake
}

// findOrAdd returns a brake, which is new if there was none. The caller holds mu.
func (b *brakes) findOrAdd(contract, fingerprint string) *brake {
	all := b.byContract[contract]
	if all == nil {
		all = map[string]*brake{}
		b.byContract[contract] = all
	}

	if len(all) > maxBrakes {
		maps.DeleteFunc(all, func(_ string, k *brake) bool { return k.closedAt.IsZero() })
	}

	if all[fingerprint] == nil {
		all[fingerprint] = &brake{keys: map[string]bool{}}
	}

	return all[fingerprint]
}

// maxBrakes bounds the rejections of a contract in memory. Beyond it, findOrAdd forgets those that
// have closed no brake.
const maxBrakes = 1000

// openContract opens the brakes of a contract, because the CMS has taken a message of it, or an
// operator has resumed a lane. It reports whether a brake was closed.
func (b *brakes) openContract(contract string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openedAt[contract] = now
	wasClosed := false
	for _, k := range b.byContract[contract] {
		wasClosed = wasClosed || !k.closedAt.IsZero()
	}

	delete(b.byContract, contract)
	if wasClosed {
		b.generation++
	}

	return wasClosed
}

// adoptStored takes over the brakes in tail, which another holder has closed. A contract whose
// brakes were opened since stays open.
func (b *brakes) adoptStored(stored []lane.Brake) {
	if b.limit == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	for _, s := range stored {
		if k := b.findOrAdd(s.Contract, s.Fingerprint); k.closedAt.IsZero() &&
			s.Since.After(b.openedAt[s.Contract]) {
			k.closedAt, k.Brake = s.Since, s
		}
	}
}

// isClosed reports whether a brake of a contract is closed, and returns since when.
func (b *brakes) isClosed(contract string) (since time.Time, isClosed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, k := range b.byContract[contract] {
		if !k.closedAt.IsZero() {
			since, isClosed = earlierOf(since, k.closedAt), true
		}
	}

	return since, isClosed
}

// listClosed returns the closed brakes of some contracts, sorted by contract and fingerprint.
func (b *brakes) listClosed(contracts map[string]bool) (closed []lane.Brake) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for contract := range contracts {
		for _, k := range b.byContract[contract] {
			if !k.closedAt.IsZero() {
				closed = append(closed, k.Brake)
			}
		}
	}

	slices.SortFunc(closed, func(x, y lane.Brake) int {
		return strings.Compare(x.Contract+"\n"+x.Fingerprint, y.Contract+"\n"+y.Fingerprint)
	})

	return closed
}

// hasOpened reports whether a brake in tail was opened after it was stored: then refused messages
// of the lane can be sent.
func (b *brakes) hasOpened(stored []lane.Brake) bool {
	return slices.ContainsFunc(stored, func(s lane.Brake) bool {
		_, isClosed := b.isClosed(s.Contract)
		return !isClosed && !b.readOpenedAt(s.Contract).Before(s.Since)
	})
}

func (b *brakes) readOpenedAt(contract string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openedAt[contract]
}

// readGeneration returns a number that changes when closed brakes are opened.
func (b *brakes) readGeneration() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.generation
}

// eraseReasons erases the words of the CMS. The next commit writes the brakes into tail without
// them.
func (b *brakes) eraseReasons() {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, all := range b.byContract {
		for _, k := range all {
			k.Reason = ""
		}
	}
}

// mayBeBraked reports whether messages of the worker's lane may wait for a brake.
func (t *laneWorker) mayBeBraked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endTenure != nil || t.reportedLook != t.looks || t.report.hasBrakes
}

// brakedMessages finds the refused messages of a lane that wait for a brake (see brake.go).
type brakedMessages struct {
	laneScope
	brakes     *brakes
	keys       *keyStates
	journal    *journal
	wakeOthers func() // is called when brakes were opened
	generation int    // brakes.generation when the blocks were last compared with the brakes
	counted    []lane.Brake
	countedAt  time.Time // zero = the next call of list counts
}

// judgeRejection returns the outcome that is recorded for a rejected message.
func (m *brakedMessages) judgeRejection(c *candidate, result weir.Result) weir.Outcome {
	switch m.brakes.judgeRejection(c.entry, result, m.now()) {
	case makesWait:
		c.isBraked = true
		return weir.OutcomeUnavailable
	case closesBrake:
		m.log.Warn("drain: brake closed, further messages with this rejection wait",
			"subject", c.entry.Message.Contract, "fence", m.fence, "status", result.Status,
			"err", result.Reason)
	}

	return result.Outcome
}

// openContract opens the brakes of a contract of which the CMS has taken a message.
func (m *brakedMessages) openContract(contract string) {
	if m.brakes.openContract(contract, m.now()) {
		m.log.Info("drain: brake opened", "subject", contract, "fence", m.fence)
		m.wakeOthers()
	}
}

// eraseReasons erases the words of the CMS from the brakes.
func (m *brakedMessages) eraseReasons() {
	m.brakes.eraseReasons()
	m.countedAt = time.Time{}
}

// openAll opens the brakes for which messages of the lane wait, because an operator has resumed it.
func (m *brakedMessages) openAll() {
	for contract := range m.listContracts() {
		m.openContract(contract)
	}
}

func (m *brakedMessages) listContracts() map[string]bool {
	contracts := map[string]bool{}
	for _, k := range m.keys.byID {
		if k.BrakedContract != "" {
			contracts[k.BrakedContract] = true
		}
	}
	return contracts
}

// chooseNextAt returns the time at which a refused message is sent again if the brake stays closed.
// The message becomes the probe if no other message of its contract is sent before that time.
func (m *brakedMessages) chooseNextAt(e *lane.Entry) time.Time {
	now, contract := m.now(), e.Message.Contract
	since, isClosed := m.brakes.isClosed(contract)
	if !isClosed { // another lane has just opened it
		return now
	}

	backoff := m.keys.backoff
	delay := max(backoff.longestDelay(1), now.Sub(since)/probeShare)
	probe := now.Add(min(delay, backoff.longestDelay(1000)))
	for _, k := range m.keys.byID {
		if k.BrakedContract == contract && k.KeyHash != e.KeyHash() && k.NextAt.After(now) &&
			!k.NextAt.After(probe) {
			return clock.Later(probe, clock.Later(since, e.WaitingSince()).Add(m.brakes.patience))
		}
	}

	return probe
}

// adoptBlock adapts a stored block to the brakes. If the brakes of its contract are open, the block
// is tried at once.
func (m *brakedMessages) adoptBlock(k *keyState) {
	since, isClosed := m.brakes.isClosed(k.BrakedContract)
	if !isClosed {
		k.waitUntil(m.now())
		return
	}
	k.waitUntil(clock.Earlier(k.NextAt, clock.Later(since, m.now()).Add(m.brakes.patience)))
}

// releaseOpened makes the refused messages whose brakes were opened ready to be sent. A block stays
// marked until its message is sent.
func (m *brakedMessages) releaseOpened() {
	generation := m.brakes.readGeneration()
	if generation == m.generation {
		return
	}

	m.generation, m.countedAt = generation, time.Time{}
	now := m.now()
	var ready []*keyState
	for _, k := range m.keys.byID {
		_, isClosed := m.brakes.isClosed(k.BrakedContract)
		if k.BrakedContract != "" && k.NextAt.After(now) && !isClosed {
			k.waitUntil(now)
			ready = append(ready, k)
		}
	}

	if len(ready) == 0 {
		return
	}

	// Tail's next due time is written before the blocks, so that no commit has a block that is due
	// before it: if the holder died after such a commit, the lane would be left alone until tail's
	// time.
	m.journal.record(&lane.Change{}, false)

	for _, k := range ready {
		ch := &lane.Change{}
		ch.SaveBlock(k.KeyBlock)
		m.journal.addChange(ch, false)
	}
}

// listWaiting returns the closed brakes for which messages of the lane wait, with the numbers of
// these messages. The numbers can be a second old.
func (m *brakedMessages) listWaiting() []lane.Brake {
	now := m.now()
	if m.countedAt.IsZero() || now.Sub(m.countedAt).Abs() >= countInterval {
		m.counted, m.countedAt = m.countWaiting(), now
	}
	return m.counted
}

func (m *brakedMessages) countWaiting() []lane.Brake {
	messages, keys := map[string]int64{}, map[string]int64{}
	for _, k := range m.keys.byID {
		if k.BrakedContract != "" {
			messages[k.BrakedBy] += k.HeldCount
			keys[k.BrakedBy]++
		}
	}

	if len(messages) == 0 {
		return nil
	}

	closed := m.brakes.listClosed(m.listContracts())
	for i := range closed {
		closed[i].Messages, closed[i].Keys = messages[closed[i].Fingerprint],
			keys[closed[i].Fingerprint]
	}

	return closed
}

// holdBraked makes a refused message wait for its brake. The row has no time of a next attempt: the
// block has it, because it comes earlier when the brake is opened.
func (o *outcomeRecorder) holdBraked(c *candidate, ch *lane.Change, result weir.Result) error {
	result.Outcome = weir.OutcomeUnavailable // the record of a rejection would be that of a death
	c.entry.Record(result, o.fence, false)
	ch.Key = c.entry.KeyHash()
	fingerprint, _ := weir.Fingerprint(c.entry.Message.Contract, result.Status, result.Reason)
	at := o.braked.chooseNextAt(c.entry)
	if err := o.scheduleRetry(c, ch, time.Time{}); err != nil {
		return err
	}

	k := o.keys.findHolding(c.entry)
	k.waitForBrake(c.entry.Message.Contract, fingerprint, at)
	ch.SaveBlock(k.KeyBlock)
	o.braked.countedAt = time.Time{}

	return nil
}
