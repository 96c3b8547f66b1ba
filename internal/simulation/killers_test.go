package simulation_test

import (
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
)

// In worlds of killers one message, the killer, ends each process that sends it. The CMS takes all other messages. A
// holder that may send nothing stays with its lane for some time only, and the settle time is often longer than that.
// Holders then hand the lane over between two crashes.

// deathsAtMost is the largest number of processes that the killer may end: three until the lane runs carefully, and
// three more until the message is dead.
const deathsAtMost = 6

// killing has the killer's submissions: their numbers are from begins to ends-1. The zero value is for worlds of other
// kinds.
type killing struct{ begins, ends int }

// drawKillers draws the settings of a seed with a killer.
func drawKillers(d *dice) settings {
	s := settings{
		instances: 1 + d.drawBelow("instances", 2), lanes: 1 + d.drawBelow("lanes", 2),
		messages: 10 + d.drawBelow("messages", 20), keys: 2 + d.drawBelow("keys", 6), attempts: 3,
		lease: 15 * time.Second, settle: d.drawBetween("settle", time.Second, 10*time.Second),
		timeout: 5 * time.Second, backoff: drain.Backoff{Min: time.Second, Max: 5 * time.Second},
		trouble: 30 * time.Second, bad: [2]int{-1, -1}, refusedRow: -1,
	}
	s.killing.begins = d.drawBelow("killer", s.messages)
	s.killing.ends = s.killing.begins + 1
	return s
}

// isKiller reports whether a body is the killer's.
func (w *world) isKiller(body string) bool {
	n, err := numberOf(body)
	return err == nil && n >= w.killing.begins && n < w.killing.ends
}

// deaths reports the deaths of a slot's processes, by the name of each process.
type deaths struct {
	names   chan string   // has room for the death of the running process
	over    chan struct{} // closed when no process is started any more
	restart sync.WaitGroup
}

// dieOf ends the process while it sends a message. The slot starts the next process.
func (p *process) dieOf(body string) {
	if p.isDead() {
		return
	}
	p.w.check.noteDeath(body)
	p.killProcess()
	p.slot.deaths.names <- p.name
}

// restartProcesses starts a process some time after each death, until stopRestarts.
func (s *slot) restartProcesses() {
	s.deaths.names, s.deaths.over = make(chan string, 1), make(chan struct{})
	s.deaths.restart.Go(func() {
		for {
			select {
			case name := <-s.deaths.names:
				time.Sleep(s.w.dice.drawBetween(name+" down", 100*time.Millisecond, 3*time.Second))
				s.startProcess()
			case <-s.deaths.over:
				return
			}
		}
	})
}

// stopRestarts ends restartProcesses, if the world has killers.
func (s *slot) stopRestarts() {
	if s.deaths.over == nil {
		return
	}
	close(s.deaths.over)
	s.deaths.restart.Wait()
}

// noteDeath counts the processes that the killer has ended, and checks their number.
func (c *checker) noteDeath(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts.Deaths++; c.counts.Deaths > deathsAtMost {
		c.addViolation("killer", "%d processes have ended while they sent %.20s, want %d at most", c.counts.Deaths,
			body, deathsAtMost)
	}
}

// TestKillers runs KILLERS seeds from KILLERS_FROM on; by default 30.
func TestKillers(t *testing.T) {
	if sum := runWorlds(t, "KILLERS", 30, drawKillers); sum.Deaths == 0 {
		t.Error("no process was ended by a message, want some")
	}
}
