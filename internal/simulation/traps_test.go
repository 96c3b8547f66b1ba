package simulation_test

import (
	"fmt"
	"strings"
	"time"
)

// moment is the moment of an operation at which a trap kills or stalls the process.
type moment int

const (
	early      moment = iota // directly before the operation is sent or takes effect
	afterwards               // directly after the effect, when the caller has no answer yet
)

// trap kills or stalls a process exactly at the process's next operation of a certain kind. A fault
// at a random time would hardly ever hit such a moment.
type trap struct {
	op     string // part of the operation's name
	at     moment
	act    func()
	sprung chan struct{}
}

// springTrap kills or stalls the process if its trap waits for the operation op and the moment at.
// Each operation calls springTrap at both moments.
func (p *process) springTrap(op string, at moment) {
	p.mu.Lock()
	t := p.trap
	if t == nil || t.at != at || !strings.Contains(op, t.op) {
		p.mu.Unlock()
		return
	}

	p.trap = nil
	p.mu.Unlock()
	p.w.trace.addLine("%s: trap at %s (%d)", p.name, op, at)
	t.act()
	close(t.sprung)
}

// patient is the longest time that a trap waits for its operation.
const patient = 20 * time.Second

// setTrap sets a trap for a drawn kind of operation of the slot's current process. If no such
// operation comes in time (see patient), setTrap removes the trap and returns. If the trap stalls
// the process, setTrap ends the stall after a while. If the trap kills the process, setTrap starts
// another process in the slot after a while.
func (s *slot) setTrap() {
	w, p, name := s.w, s.currentProcess(), fmt.Sprint("slot ", s.number, " trap")
	t := &trap{
		op: []string{"send", "send", "send", "!tail", "!tail", "!head", "acquire", "renew",
			"release", "range", "get", "s_", "w_", "schedules"}[w.dice.drawBelow(name+" op", 14)],
		at:     []moment{early, afterwards}[w.dice.drawBelow(name+" at", 2)],
		sprung: make(chan struct{}),
	}

	kills := w.dice.drawChance(name+" kills", 0.4)
	t.act = p.standStill
	if kills {
		t.act = p.killProcess
	}

	p.mu.Lock()
	p.trap = t
	p.mu.Unlock()

	select {
	case <-t.sprung:
	case <-time.After(patient):
		p.mu.Lock()
		missed := p.trap == t
		p.trap = nil
		p.mu.Unlock()
		if missed {
			return
		}
	}

	w.check.addCounts(func(c *counts) { c.Traps++ })

	if kills {
		time.Sleep(w.dice.drawBetween(name+" down", 100*time.Millisecond, 25*time.Second))
		s.startProcess()
		return
	}

	time.Sleep(w.dice.drawBetween(name+" still", time.Second, 40*time.Second))
	p.goOn()
}
