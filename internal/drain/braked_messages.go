package drain

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

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
			return laterOf(probe, laterOf(since, e.WaitingSince()).Add(m.brakes.patience))
		}
	}
	return probe
}

// adoptBlock adapts a stored block to the brakes. If the brakes of its contract are open, the block is
// tried at once.
func (m *brakedMessages) adoptBlock(k *keyState) {
	since, isClosed := m.brakes.isClosed(k.BrakedContract)
	if !isClosed {
		k.waitUntil(m.now())
		return
	}
	k.waitUntil(limitTime(k.NextAt, laterOf(since, m.now()).Add(m.brakes.patience)))
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

	// Tail's next due time is written before the blocks, so that no commit has a block that is due before
	// it: if the holder died after such a commit, the lane would be left alone until tail's time.
	m.journal.record(&lane.Change{}, false)
	for _, k := range ready {
		ch := &lane.Change{}
		ch.SaveBlock(k.KeyBlock)
		m.journal.addChange(ch, false)
	}
}

// listWaiting returns the closed brakes for which messages of the lane wait, with the numbers of these
// messages. The numbers can be a second old.
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
		closed[i].Messages, closed[i].Keys = messages[closed[i].Fingerprint], keys[closed[i].Fingerprint]
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
