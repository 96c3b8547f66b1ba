package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// TestTableRemoved_BeginsAnew removes the table while a handler runs. The handler must exit,
// because it has lanes and sequence numbers of the removed table in memory. The host starts another
// handler, which creates the table again and accepts messages.
func TestTableRemoved_BeginsAnew(t *testing.T) {
	s := newSystem(t, 1)
	before, err := s.postMessageOnce("/before", 1, "before")
	if err != nil {
		t.Fatal(err)
	}

	s.awaitStages([]postedMessage{before}, "delivered", time.Minute)
	first := getJSON[hostStatus](s, s.weir+"/admin/host/status").Instances[0].PID
	tables, err := aztables.NewServiceClientFromConnectionString(s.storage.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := tables.DeleteTable(t.Context(), "weirlanes", nil); err != nil {
		t.Fatal(err)
	}

	var after postedMessage
	s.awaitCondition("messages are accepted again", time.Minute, func() bool {
		var err error
		after, err = s.postMessageOnce("/after", 1, "after")
		return err == nil
	})

	s.awaitStages([]postedMessage{after}, "delivered", time.Minute)
	if now := getJSON[hostStatus](s, s.weir+"/admin/host/status").Instances[0].PID; now == first {
		t.Errorf("the process is still %d; want another one", now)
	}

	if got := s.getStatus(s.weir + "/api/messages/" + before.ID); got != http.StatusNotFound {
		t.Errorf("the state of a message of the removed table was answered %d; want 404", got)
	}
}

// With the setting delivery.instances: process, receivers put tickets into the queue and deliver
// nothing. The process that gets a ticket delivers the messages of the lane.
func TestDeliveryByProcess(t *testing.T) {
	s := newSystem(t, 2, "method: POST", "method: POST\n  instances: process")
	accepted := s.postBurst(t.Context(), 5, 10)
	s.awaitStages(accepted, "delivered", time.Minute)
	if st := s.checkRecord(); st.Writes != 50 || st.Repeats != 0 {
		t.Errorf("%+v; want 50 writes and no repeat", st)
	}

	s.checkHistory(accepted)
}
