package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// The time between two reports of progress: on a terminal one line shows the latest report, and
// elsewhere each report is a line of its own.
const (
	redrawInterval = 100 * time.Millisecond
	reportInterval = 10 * time.Second
)

// progressReport shows progress on stderr.
type progressReport struct {
	out        io.Writer
	isTerminal bool
	what       string // the text beside the numbers

	mu    sync.Mutex
	done  int    // number of finished items
	total int    // number of all items; -1 = not known yet
	shown string // the report that the line of a terminal shows; "" = the line is clear

	stop chan struct{} // closed by finishReport
	wg   sync.WaitGroup
}

// newProgress starts a report of progress. The parameter "what" has the text beside the numbers.
// The parameter "total" is the number of all items; -1 = not known yet.
func (s *console) newProgress(what string, total int) *progressReport {
	p := &progressReport{out: s.stderr, isTerminal: isTerminal(s.stderr), what: what, total: total,
		stop: make(chan struct{})}
	interval := reportInterval
	if p.isTerminal {
		interval = redrawInterval
	}

	p.wg.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()

		for {
			select {
			case <-p.stop:
				return
			case <-ticker.C:
				p.show()
			}
		}
	})

	return p
}

// show reports the progress.
func (p *progressReport) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("weir: %d of %d %s", p.done, max(p.total, 0), p.what)
	switch {
	case !p.isTerminal:
		fmt.Fprintln(p.out, text)
	case text != p.shown:
		p.clear()
		fmt.Fprint(p.out, text)
		p.shown = text
	}
}

// clear removes the report from the line of a terminal.
func (p *progressReport) clear() {
	if p.shown != "" {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", len(p.shown))+"\r")
	}
	p.shown = ""
}

// addOne adds 1 to the number of finished items.
func (p *progressReport) addOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// setCount sets the numbers of finished items and of all items.
func (p *progressReport) setCount(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, total
}

// printBetween calls print while the line of a terminal is clear, so that the report does not mix
// with other output.
func (p *progressReport) printBetween(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	print()
}

// finishReport ends the report. A second call panics.
func (p *progressReport) finishReport() {
	close(p.stop)
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
