package clock_test

import (
	"testing"

	"weir/internal/clock"
)

// LoadZone must refuse names that exist only on some machines.
func TestLoadZone(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"": true, "UTC": true, "Europe/Berlin": true,
		"Local":     false,
		"localtime": false, "posixrules": false, "POSIXRULES": false, "posix/Europe/Berlin": false,
		"right/Europe/Berlin": false, "../etc/localtime": false, "Europe/Bielefeld": false} {
		if zone, err := clock.LoadZone(name); (err == nil) != want {
			t.Errorf("%q: got %v %v, want it accepted: %t", name, zone, err, want)
		}
	}
}
