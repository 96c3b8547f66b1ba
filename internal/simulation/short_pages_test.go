package simulation_test

import (
	"testing"
)

// In worlds of short pages storage cuts most pages. A holder that moves due messages then often reads a page without a
// message to move.

func drawShortPages(d *dice) settings {
	s := drawSettings(d)
	s.shortPages = 0.6
	return s
}

// TestShortPages runs SHORT seeds from SHORT_FROM on; by default 30.
func TestShortPages(t *testing.T) { runWorlds(t, "SHORT", 30, drawShortPages) }
