package notify_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"weir/internal/weir"
)

// Hosts that answer slowly are not away: they must not take every place from another one.
func TestSender_SlowHostsLeaveRoom(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.receiver.set(func(r *http.Request) (int, http.Header, error) {
			if r.URL.Host != "z.slow.example.com" {
				time.Sleep(5 * time.Second)
			}
			return 204, nil, nil
		})
		var slow []weir.ID
		for i := range 160 {
			slow = append(slow, w.file(fmt.Sprintf("https://%c.slow.example.com/done", 'a'+i%8)))
		}
		w.start()
		w.end(weir.Delivered, slow...)
		began := time.Now()
		w.end(weir.Delivered, w.file("https://z.slow.example.com/done"))
		sleep(20 * time.Second)
		w.receiver.set(takes(204)) // it is seen by now
		sleep(time.Minute)
		for _, got := range w.receiver.all() {
			if got.url == "https://z.slow.example.com/done" {
				if took := got.at.Sub(began); took > 11*time.Second {
					t.Errorf("told after %s", took)
				}
				return
			}
		}
		t.Error("not told")
	})
}
