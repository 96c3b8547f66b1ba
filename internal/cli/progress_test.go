package cli

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress_LinesWithoutATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := (&console{stderr: &out}).newProgress("sent", 3)
		p.addOne()
		time.Sleep(2*reportInterval + time.Second)
		p.printBetween(func() { fmt.Fprintln(&out, "a line") })
		p.finishReport()

		want := "weir: 1 of 3 sent\nweir: 1 of 3 sent\na line\n"
		if got := out.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Each report replaces the former one in the same line, and other output finds the line clear.
func TestProgress_OneLineOfATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &progressReport{out: &out, isTerminal: true, what: "parts filed", total: -1,
		stop: make(chan struct{})}
	p.show()
	p.show()
	p.setCount(1, 2)
	p.show()
	p.printBetween(func() { fmt.Fprintln(&out, "a line") })
	p.addOne()
	p.show()
	p.finishReport()

	const blank = "\r                        \r"
	want := "weir: 0 of 0 parts filed" + blank + "weir: 1 of 2 parts filed" + blank + "a line\n" +
		"weir: 2 of 2 parts filed" + blank
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
