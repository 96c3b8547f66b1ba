package simulation_test

import (
	"fmt"
	"strings"
	"time"
)

// moment is the point of an operation at which a trap springs.
type moment int

const (
	early      moment = iota // the operation is about to be sent, or to take effect
	afterwards               // the operation has taken effect, and the caller has no answer yet
)

// trap kills a process, or makes it stand still, at the process's next operation of a kind. A fault at a drawn time
// would hardly ever happen at such a moment.
type trap struct {
	op     string // part of the operation's name
	at     moment
	act    func()
	sprung chan struct{}
}

// springTrap is called before and after each operation takes effect. If op and at are those of the trap, springTrap
// springs it.
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

// setTrap makes the process crash or stand still at its next operation of a kind, if that operation comes within the
// time patient. It returns when the process runs again.
func (s *slot) setTrap() {
	w, p, name := s.w, s.currentProcess(), fmt.Sprint("slot ", s.number, " trap")
	t := &trap{
		op: []string{"send", "send", "send", "!tail", "!tail", "!head", "acquire", "renew", "release", "range",
			"get", "s_", "w_", "schedules"}[w.dice.drawBelow(name+" op", 14)],
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
