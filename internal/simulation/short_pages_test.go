package simulation_test

import (
	"testing"
)

// Worlds in which storage cuts most pages. A holder that moves due messages then often reads an answer of which nothing
// is left to move.

func drawShortPages(d *dice) settings {
	s := drawSettings(d)
	s.shortPages = 0.6
	return s
}

// TestShortPages runs SHORT seeds from SHORT_FROM on; by default 30.
func TestShortPages(t *testing.T) { runWorlds(t, "SHORT", 30, drawShortPages) }
