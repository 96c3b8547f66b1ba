package simulation_test

import (
	"testing"
)

// Each run of the simulation simulates one world. In a world of short pages, storage cuts most
// pages: storage leaves out some of the rows, and reports that more rows follow. So when a holder
// moves due messages, the holder often reads a page without a due message.

func drawShortPages(d *dice) settings {
	s := drawSettings(d)
	s.shortPages = 0.6
	return s
}

// TestShortPages runs seeds of worlds of short pages. The environment variable SHORT is the number
// of seeds, by default
// 30. SHORT_FROM is the first seed, by default 1.
func TestShortPages(t *testing.T) { runWorlds(t, "SHORT", 30, drawShortPages) }
