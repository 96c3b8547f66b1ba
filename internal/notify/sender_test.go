package notify_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestSender_CallsBack(t *testing.T) {
	for _, stage := range []weir.Stage{weir.Delivered, weir.Dead, weir.Cancelled} {
		t.Run(string(stage), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.start()
				id := w.file(hook)
				w.end(stage, id)
				sleep(time.Second)
				all := w.receiver.all()
				if len(all) != 1 {
					t.Fatalf("called back %d times", len(all))
				}
				got, data := all[0], all[0].event.Data
				if got.url != hook || got.event.Type != "message."+string(stage) || data["id"] != id.String() ||
					data["stage"] != string(stage) ||
					data["key"] != "/a" || data["contract"] != "article" || data["attempts"] != 1.0 ||
					strings.Contains(string(got.body), "secret body") {
					t.Errorf("%s %s", got.url, got.body)
				}
				if wants := stage == weir.Dead; wants != (data["reason"] == "400 no such path") {
					t.Errorf("reason %v", data["reason"])
				}
				seconds, _ := strconv.ParseInt(got.seconds, 10, 64)
				if want := secretOf(t, knownSecret).Sign(got.id, time.Unix(seconds, 0), got.body); got.sign != want ||
					seconds != got.at.Unix() {
					t.Errorf("signed %s at %d, want %s", got.sign, seconds, want)
				}
				sleep(time.Minute)
				w.empty()
			})
		})
	}
}

func TestSender_ASilentLaneWritesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.end(weir.Delivered, w.file(""))
		w.end(weir.Dead, w.file(""))
		sleep(time.Second)
		if w.empty(); len(w.receiver.all()) != 0 {
			t.Error("somebody was told")
		}
	})
}

// Each receiver knows its secret, so a host with one of its own must not get signatures by another.
func TestSender_SignsByTheSecretOfTheHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		keys := map[string]string{"": knownSecret, "hooks.example.com": "whsec_" + strings.Repeat("b", 32),
			"*.slow.example.com": "whsec_" + strings.Repeat("c", 32), "a.slow.example.com": "whsec_" + strings.Repeat("d", 32)}
		w.start(func(c *notify.Config) {
			c.Callbacks.AllowedHosts = []string{"hooks.example.com", "*.slow.example.com", "a.slow.example.com",
				"plain.example.com"}
			c.Callbacks.HostSecrets = map[string]notify.Secret{}
			for host, key := range keys {
				if host != "" {
					c.Callbacks.HostSecrets[host] = secretOf(t, key)
				}
			}
		})
		by := map[string]string{"https://hooks.example.com/x": keys["hooks.example.com"],
			"https://HOOKS.example.com:443/y": keys["hooks.example.com"],
			"https://b.slow.example.com/":     keys["*.slow.example.com"], "https://a.slow.example.com/": keys["a.slow.example.com"],
			"https://plain.example.com/": keys[""]}
		for address := range by {
			w.end(weir.Delivered, w.file(address))
		}
		sleep(time.Minute)
		all := w.receiver.all()
		if len(all) != len(by) {
			t.Fatalf("got %d events, want %d", len(all), len(by))
		}
		for _, e := range all {
			seconds, err := strconv.ParseInt(e.seconds, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if want := secretOf(t, by[e.url]).Sign(e.id, time.Unix(seconds, 0), e.body); e.sign != want {
				t.Errorf("%s: got signature %s, want %s", e.url, e.sign, want)
			}
		}
	})
}

// Where messages trickle, a callback costs: lease, control rows, outbox, message, both rows
// away, lease. None of it is the delivery's.
func TestSender_CostsSixTransactions(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		var calls []string
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			calls = append(calls, c.Port+" "+c.Op)
			return storagetest.Fault{}
		})
		w.end(weir.Delivered, w.file(hook))
		sleep(time.Hour)
		want := []string{"table Range", "leases Acquire", "table Range", "table Get", "table Transact",
			"leases Release"}
		if w.empty(); !slices.Equal(calls, want) {
			t.Errorf("got calls %v, want %v", calls, want)
		}
	})
}

func TestSender_TriesAgainByTheSchedule(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(takes(500))
		began := time.Now()
		w.end(weir.Delivered, w.file(hook))
		sleep(6 * time.Hour)
		var waits []time.Duration
		all := w.receiver.all()
		for i, e := range all {
			if e.id != all[0].id || string(e.body) != string(all[0].body) {
				t.Errorf("try %d has another id or body: %s", i, e.body)
			}
			if i > 0 {
				waits = append(waits, e.at.Sub(all[i-1].at).Round(time.Second))
			}
		}
		want := []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
			30 * time.Minute, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}
		if len(waits) < 9 || !slices.Equal(waits[:9], want[:9]) {
			t.Errorf("waits %v", waits)
		}
		sleep(73*time.Hour - time.Since(began))
		n := len(w.receiver.all())
		if w.empty(); n < 74 || n > 78 || w.seen.count("message.delivered given_up") != 1 {
			t.Errorf("%d tries in three days, %+v", n, w.seen.n)
		}
		if sleep(24 * time.Hour); len(w.receiver.all()) != n {
			t.Error("it was tried after it had been given up")
		}
	})
}

func TestSender_IsToldLaterWhenTheReceiverIsBack(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(refuses)
		var ids []weir.ID
		for range 300 {
			ids = append(ids, w.file(hook))
		}
		w.end(weir.Delivered, ids...)
		sleep(10 * time.Minute)
		away := len(w.receiver.all())
		if n, noted := w.rows(); n != 300 || !noted {
			t.Fatalf("%d rows, noted: %v", n, noted)
		}
		if away > 20 {
			t.Errorf("%d requests to a host that is away", away)
		}
		w.receiver.set(takes(200))
		sleep(time.Hour)
		told := map[string]int{}
		for _, e := range w.receiver.all()[away:] {
			told[fmt.Sprint(e.event.Data["id"])]++
		}
		for _, id := range ids {
			if told[id.String()] != 1 {
				t.Errorf("%s was told %d times", id, told[id.String()])
			}
		}
		w.empty()
	})
}

func TestSender_RespectsRetryAfter(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(func(*http.Request) (int, http.Header, error) {
			return 503, http.Header{"Retry-After": {"90"}}, nil
		})
		w.end(weir.Delivered, w.file(hook))
		sleep(89 * time.Second)
		if n := len(w.receiver.all()); n != 1 {
			t.Fatalf("%d requests", n)
		}
		w.receiver.set(takes(200))
		if sleep(3 * time.Second); len(w.receiver.all()) != 2 {
			t.Errorf("%d requests", len(w.receiver.all()))
		}
		w.empty()
	})
}

func TestSender_GoneEndsIt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(takes(410))
		w.end(weir.Delivered, w.file(hook))
		sleep(time.Hour)
		if w.empty(); len(w.receiver.all()) != 1 || w.seen.count("message.delivered gone") != 1 {
			t.Errorf("%d requests, %+v", len(w.receiver.all()), w.seen.n)
		}
	})
}

func TestSender_FollowsNoRedirect(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(func(*http.Request) (int, http.Header, error) {
			return 302, http.Header{"Location": {"https://elsewhere.example.com/"}}, nil
		})
		w.end(weir.Delivered, w.file(hook))
		sleep(4 * time.Second)
		if all := w.receiver.all(); len(all) != 1 || w.seen.count("message.delivered retry") != 1 {
			t.Errorf("got %+v, want len(all) == 1 && w.seen.count(\"message.delivered retry\") == 1", all)
		}
	})
}

// A receiver that takes its time, and one that never answers, keep no other waiting.
func TestSender_ASlowReceiverKeepsNobodyWaiting(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.receiver.set(func(r *http.Request) (int, http.Header, error) {
			if strings.HasSuffix(r.URL.Hostname(), "slow.example.com") {
				timer := time.NewTimer(9 * time.Second)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-r.Context().Done():
				}
			}
			return 200, nil, nil
		})
		var slow []weir.ID
		for range 1300 { // more than one look can take in
			slow = append(slow, w.file("https://a.slow.example.com/"))
		}
		w.end(weir.Delivered, slow...)
		sleep(time.Second)
		for n := range 20 {
			began := time.Now()
			id := w.file(hook)
			w.end(weir.Delivered, id)
			sleep(time.Second)
			all := w.receiver.all()
			if i := slices.IndexFunc(all, func(e told) bool { return e.event.Data["id"] == id.String() }); i < 0 ||
				all[i].at.Sub(began) > time.Second {
				t.Fatalf("message %d waited behind the slow receiver", n)
			}
			sleep(3 * time.Second)
		}
		if n := w.receiver.atOnce(); n > 3 {
			t.Errorf("%d at once", n)
		}
		sleep(4 * time.Hour)
		w.empty()
	})
}

// Wherever a process dies, the next one sends the remaining events.
func TestSender_TellsAcrossCrashes(t *testing.T) {
	for crash := range 14 {
		t.Run(fmt.Sprint(crash), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				first := w.start()
				n := 0
				first.faults.Set(func(storagetest.Call) storagetest.Fault {
					if n++; n > crash {
						return storagetest.Fault{Kind: storagetest.FailBefore}
					}
					return storagetest.Fault{}
				})
				ids := []weir.ID{w.file(hook), w.file(hook), w.file(hook)}
				w.end(weir.Delivered, ids[:2]...)
				sleep(100 * time.Millisecond)
				w.end(weir.Dead, ids[2])
				sleep(20 * time.Second)
				second := w.start()
				for range 3 { // sweeps
					c, err := w.store.ReadControl(t.Context(), 0)
					if err != nil {
						t.Fatal(err)
					}
					second.ObserveLane(0, c)
					sleep(time.Minute)
				}
				for _, id := range ids {
					webhooks := map[string]bool{}
					for _, e := range w.receiver.all() {
						if e.event.Data["id"] == id.String() {
							webhooks[e.id] = true
						}
					}
					if len(webhooks) != 1 {
						t.Errorf("%s was told under the ids %v", id, webhooks)
					}
				}
				w.empty()
			})
		})
	}
}

// After a failed read the outbox does not count as empty, whatever the results of the requests in
// flight.
func TestSender_AFailedLookIsNoEmptyOutbox(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.receiver.set(func(*http.Request) (int, http.Header, error) {
			time.Sleep(3 * time.Second)
			return 200, nil,
				nil
		})
		w.end(weir.Delivered, w.file(hook))
		sleep(time.Second)
		p.faults.Once(func(c storagetest.Call) bool { return c.Op == "Range" && c.Key == "n_" },
			storagetest.Fault{Kind: storagetest.FailBefore})
		w.end(weir.Delivered, w.file(hook))
		sleep(3 * time.Second)
		if n, noted := w.rows(); n != 1 || !noted {
			t.Errorf("%d rows left, noted: %v", n, noted)
		}
		sleep(time.Minute)
		if w.empty(); len(w.receiver.all()) != 2 {
			t.Errorf("%d told", len(w.receiver.all()))
		}
	})
}

// An event whose message could not be read stays in the outbox, and so does the marker, even if all
// other events were sent.
func TestSender_AMessageThatCannotBeReadIsNotForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.receiver.set(func(*http.Request) (int, http.Header, error) { time.Sleep(time.Second); return 200, nil, nil })
		ids := []weir.ID{w.file(hook), w.file(hook)}
		p.faults.Once(func(c storagetest.Call) bool { return c.Op == "Get" && c.Key == "m_"+lane.OrderPos(ids[0].Seq) },
			storagetest.Fault{Kind: storagetest.FailBefore})
		w.end(weir.Delivered, ids...)
		sleep(1500 * time.Millisecond)
		if n, noted := w.rows(); n != 1 || !noted {
			t.Errorf("%d rows left, noted: %v", n, noted)
		}
		sleep(time.Minute)
		if w.empty(); len(w.receiver.all()) != 2 {
			t.Errorf("%d told", len(w.receiver.all()))
		}
	})
}

// Two processes that look after one outbox do not tell anybody twice.
func TestSender_TwoProcessesShareAnOutbox(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.start(), w.start()
		var ids []weir.ID
		for range 120 {
			ids = append(ids, w.file(hook))
		}
		w.end(weir.Delivered, ids...)
		a.WakeOutbox(0)
		b.WakeOutbox(0)
		sleep(time.Minute)
		if n := len(w.receiver.all()); n != len(ids) {
			t.Errorf("%d requests for %d messages", n, len(ids))
		}
		w.empty()
	})
}

func TestSender_DeathsAreToldToWhoWantsThem(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		key := secretOf(t, knownSecret)
		w.start(func(c *notify.Config) {
			c.Receivers = []notify.Receiver{
				{URL: "https://ops.example.com/all", Secret: key, Events: []string{notify.MessageDead}},
				{URL: "https://ops.example.com/articles", Secret: key, Events: []string{notify.MessageDead},
					Contracts: []string{"article"}},
				{URL: "https://ops.example.com/others", Secret: key, Events: []string{notify.MessageDead},
					Contracts: []string{"other"}},
				{URL: "https://ops.example.com/lanes", Secret: key, Events: []string{notify.LanePaused}},
			}
		})
		w.end(weir.Dead, w.file(hook))
		w.end(weir.Delivered, w.file(""))
		sleep(time.Second)
		var urls []string
		ids := map[string]bool{}
		for _, e := range w.receiver.all() {
			urls, ids[e.id] = append(urls, e.url), true
		}
		slices.Sort(urls)
		if want := []string{hook, "https://ops.example.com/all",
			"https://ops.example.com/articles"}; !slices.Equal(urls, want) || len(ids) != 1 {
			t.Errorf("got %v with ids %v, want %v with one id", urls, ids, want)
		}
		sleep(time.Minute)
		w.empty()
	})
}

func TestSender_DropsWhatNobodyIsToHear(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.start()
		w.end(weir.Delivered, w.file("https://was-allowed.example.com/"))
		sleep(time.Minute)
		if w.empty(); len(w.receiver.all()) != 0 || w.seen.count("message.delivered dropped") != 1 {
			t.Errorf("got %+v, want len(w.receiver.all()) == 0 && "+
				"w.seen.count(\"message.delivered dropped\") == 1", w.seen.n)
		}
	})
}

// Settle is for commands that end: all that is due has been tried when it returns.
func TestSender_Settle(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		s := w.start()
		w.receiver.set(func(*http.Request) (int, http.Header, error) {
			time.Sleep(2 * time.Second)
			return 200, nil,
				nil
		})
		w.end(weir.Delivered, w.file(hook), w.file(hook), w.file(hook), w.file(hook), w.file(hook))
		s.WaitIdle(t.Context())
		if w.empty(); len(w.receiver.all()) != 5 {
			t.Errorf("%d told", len(w.receiver.all()))
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.end(weir.Delivered, w.file(hook))
		if s.WaitIdle(limited); limited.Err() == nil {
			t.Error("Settle came back before the receiver had answered")
		}
		sleep(10 * time.Second)
	})
}
