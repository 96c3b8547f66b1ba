package drain

import "weir/internal/weir"

// late says that no attempt may begin any more. The first one that would ends the drainer
// for whatever is new, so that its lanes are handed over.
func (d *Drainer) late() bool {
	if d.NotAfter.IsZero() || !d.Now().After(d.NotAfter) {
		return false
	}
	d.shut()
	return true
}

// tooLate is the result of an attempt that was not begun: nobody's fault, and not counted.
func (d *Drainer) tooLate() weir.Result {
	return weir.Result{Outcome: weir.OutcomeNone, Reason: "there was no time left for it", StartedAt: d.Now()}
}

// Report gives what the last look at a lane found: the zero value while this process drains
// the lane, and where it has not looked yet.
func (d *Drainer) Report(number int) Report {
	d.mu.Lock()
	t := d.tenders[number]
	d.mu.Unlock()
	if t == nil {
		return Report{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown != t.round {
		return Report{}
	}
	return t.report
}
