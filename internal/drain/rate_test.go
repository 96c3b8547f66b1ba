package drain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// While the session waits for a slot, it chooses a message again and again. Due messages still take
// turns with those of the log.
func TestDrainer_Rate_DueMessagesTakeTurnsWithTheLog(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(10*time.Millisecond, 200))
		at := time.Now().Add(10 * time.Second)
		for i := range 40 {
			w.post(fmt.Sprint("due", i), "due", withDueTime(at))
		}
		for i := range 40 {
			w.post(fmt.Sprint("log", i), "log")
		}

		w.start(w.limitRate(1, time.Second)).Wake(0)
		time.Sleep(24 * time.Second)

		counts := map[string]int{}
		for _, r := range w.cms.listRequests() {
			if r.at.After(at) {
				counts[strings.TrimRight(r.key, "0123456789")]++
			}
		}
		if counts["due"] < 4 || counts["log"] < 4 {
			t.Errorf("after the due time: got %v sent, want at least 4 of each", counts)
		}
	})
}
