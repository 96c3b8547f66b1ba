package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// On Azure, log lines cost more than the storage of messages. So Weir logs only one line for a
// message that is delivered at the first attempt.
func TestLog_OneLineAMessage(t *testing.T) {
	s := newSystem(t, 1)
	begun := len(s.output.String()) // the test skips the lines of the readiness checks
	var ids, addresses []string
	for i := range 30 {
		address, id := s.postBody(articleWithTitle(fmt.Sprintf("/news/%d", i), 1, "Hello"))
		ids, addresses = append(ids, id), append(addresses, address)
	}

	for _, address := range addresses {
		s.awaitStageAt(address, "delivered")
	}

	log := s.output.String()[begun:]
	size := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"message_id"`) {
			size += len(line)
		}
	}

	t.Logf("%d bytes a message", size/len(ids))

	for _, id := range ids {
		if got := strings.Count(log, `"message_id":"`+id+`"`); got != 1 {
			t.Errorf("%d lines of message %s, want 1", got, id)
		}
	}

	if got := strings.Count(log, `"level":"INFO"`); got != len(ids) {
		t.Errorf("%d lines of level INFO for %d messages, want one each:\n%s", got, len(ids), log)
	}
}
