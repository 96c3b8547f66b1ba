package simulation_test

import (
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
)

// TestKillers simulates runs with a killer: a message that ends each process that sends it. The CMS
// takes all other messages. After a crash the next holder sends nothing during the settle time. The
// settle time is often longer than the time for which a holder keeps a lane without sending. In
// such runs, the lane moves to another holder between two crashes.

// deathsAtMost is the largest number of processes that the killer is allowed to end. After three
// deaths a holder names each message in tail before it sends the message. After three more deaths
// the named message is dead.
const deathsAtMost = 6

// killing has the range of the submissions that are killers: the submission n is a killer if begins
// <= n < ends. The zero value means that there are no killers.
type killing struct{ begins, ends int }

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

// isKiller reports whether a body is that of a killer.
func (w *world) isKiller(body string) bool {
	n, err := numberOf(body)
	return err == nil && n >= w.killing.begins && n < w.killing.ends
}

// deaths tells restartProcesses which processes were ended by a killer. Each slot (an instance of
// the platform) has its own deaths.
type deaths struct {
	// names of ended processes; the buffer takes one name, so that dieOf does not wait
	names   chan string
	over    chan struct{} // closed when no process is started any more
	restart sync.WaitGroup
}

// dieOf ends the process because it sends a killer. restartProcesses starts the next process.
func (p *process) dieOf(body string) {
	if p.isDead() {
		return
	}
	p.w.check.noteDeath(body)
	p.killProcess()
	p.slot.deaths.names <- p.name
}

// restartProcesses starts a process some time after each death, until stopRestarts is called.
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

// stopRestarts ends restartProcesses, if restartProcesses was called.
func (s *slot) stopRestarts() {
	if s.deaths.over == nil {
		return
	}
	close(s.deaths.over)
	s.deaths.restart.Wait()
}

// noteDeath counts the processes that a killer has ended, and checks their number.
func (c *checker) noteDeath(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts.Deaths++; c.counts.Deaths > deathsAtMost {
		c.addViolation("killer", "%d processes have ended while they sent %.20s, want %d at most",
			c.counts.Deaths, body, deathsAtMost)
	}
}

// TestKillers runs 30 seeds with a killer, from seed 1 on. The environment variables KILLERS and
// KILLERS_FROM change the number and the first seed.
func TestKillers(t *testing.T) {
	if sum := runWorlds(t, "KILLERS", 30, drawKillers); sum.Deaths == 0 {
		t.Error("no process was ended by a message, want some")
	}
}
