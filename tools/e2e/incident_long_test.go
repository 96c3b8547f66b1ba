//go:build long

package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// TestLong_IncidentOnFlex is TestIncident with separate instances for each group of functions. The
// host ends instances that have had no invocation for five seconds.
func TestLong_IncidentOnFlex(t *testing.T) {
	s := newSystemUnder(t, nil, onFlex(5*time.Second), incidentSettings...)
	s.runIncident()
	if want := "is scaled in."; !strings.Contains(s.output.String(), want) {
		t.Errorf("the host did not log %q", want)
	}
}
