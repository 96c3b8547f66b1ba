//go:build long

package e2e_test

import "testing"

// furtherActs is the number of acts that the long tests have beside those of TestChaos.
const furtherActs = 3

// TestLong_Chaos is TestChaos with more acts.
func TestLong_Chaos(t *testing.T) { newChaos(t, "", "").runChaos(furtherActs) }

// TestLong_ChaosOnFlex runs the same test, but each host runs only one group of functions. One host
// of the group "http" gets the posts, and two hosts of the group "process" get the tickets.
func TestLong_ChaosOnFlex(t *testing.T) {
	c := newChaos(t, "http", "process", "process")
	c.startHost("sweep") // no act ends this host, because its handler runs only during sweeps
	c.runChaos(furtherActs)
}
