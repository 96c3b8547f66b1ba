package notify_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

// A host that answers slowly gets no backoff. Requests to eight slow hosts must not fill the lane's
// limit of concurrent requests: the event to another host must be sent soon.
func TestSender_SlowHostsLeaveRoom(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.receiver.setAnswer(func(r *http.Request) (int, http.Header, error) {
			if r.URL.Host != "z.slow.example.com" {
				time.Sleep(5 * time.Second)
			}
			return 204, nil, nil
		})

		var slow []weir.ID
		for i := range 160 {
			slow = append(slow,
				w.appendMessage(fmt.Sprintf("https://%c.slow.example.com/done", 'a'+i%8)))
		}

		w.startSender()
		w.commitFinal(weir.Delivered, slow...)
		began := time.Now()
		w.commitFinal(weir.Delivered, w.appendMessage("https://z.slow.example.com/done"))
		passTime(20 * time.Second)
		w.receiver.setAnswer(answerStatus(204)) // so that the test ends soon
		passTime(time.Minute)

		for _, got := range w.receiver.listEvents() {
			if got.url == "https://z.slow.example.com/done" {
				if took := got.at.Sub(began); took > 11*time.Second {
					t.Errorf("the event to z.slow.example.com was sent after %s, want at most 11s",
						took)
				}
				return
			}
		}

		t.Error("the event to z.slow.example.com was not sent, want it sent within 11s")
	})
}

// An address that answers 429 must not delay the events to the other addresses of its host.
func TestSender_ABusyAddressDelaysNoOtherOfItsHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(func(r *http.Request) (int, http.Header, error) {
			if r.URL.Path == "/busy" {
				return 429, nil, nil
			}
			return 200, nil, nil
		})

		var busy []weir.ID
		for range 300 {
			busy = append(busy, w.appendMessage("https://hooks.example.com/busy"))
		}

		w.commitFinal(weir.Delivered, busy...)
		passTime(time.Second)

		for n := range 20 {
			w.commitFinal(weir.Delivered, w.appendMessage(hook))
			passTime(time.Second)
			if told := w.seen.countOf("message.delivered told"); told != n+1 {
				t.Fatalf("got %[2]d sent events of %[1]d messages, want %[3]d", n+1, told, n+1)
			}
			passTime(7 * time.Second)
		}

		asked := 0
		for _, e := range w.receiver.listEvents() {
			if strings.HasSuffix(e.url, "/busy") {
				asked++
			}
		}

		if asked > 20 { // in three minutes
			t.Errorf("got %d requests to an address that answers 429, want at most 20", asked)
		}

		w.receiver.setAnswer(answerStatus(200))
		passTime(2 * time.Hour)
		w.checkOutboxEmpty()
	})
}
