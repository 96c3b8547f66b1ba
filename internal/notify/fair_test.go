package notify_test

import (
	"fmt"
	"net/http"
	"strings"
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

// An address that cannot take events just now does not keep others of its host from theirs.
func TestSender_ABusyAddressLeavesItsHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(func(r *http.Request) (int, http.Header, error) {
			if r.URL.Path == "/busy" {
				return 429, nil, nil
			}
			return 200, nil, nil
		})
		var busy []weir.ID
		for range 300 {
			busy = append(busy, w.file("https://hooks.example.com/busy"))
		}
		w.end(weir.Delivered, busy...)
		sleep(time.Second)
		for n := range 20 {
			w.end(weir.Delivered, w.file(hook))
			sleep(time.Second)
			if told := w.seen.count("message.delivered told"); told != n+1 {
				t.Fatalf("of %d messages %d were told of", n+1, told)
			}
			sleep(7 * time.Second)
		}
		asked := 0
		for _, e := range w.receiver.all() {
			if strings.HasSuffix(e.url, "/busy") {
				asked++
			}
		}
		if asked > 20 { // in three minutes
			t.Errorf("%d requests to an address that cannot take them", asked)
		}
		w.receiver.set(takes(200))
		sleep(2 * time.Hour)
		w.empty()
	})
}
