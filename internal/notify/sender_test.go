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
				w.startSender()
				id := w.appendMessage(hook)
				w.commitFinal(stage, id)
				passTime(time.Second)
				all := w.receiver.listEvents()
				if len(all) != 1 {
					t.Fatalf("got %d callbacks, want 1", len(all))
				}

				got, data := all[0], all[0].event.Data
				if got.url != hook || got.event.Type != "message."+string(stage) ||
					data["id"] != id.String() ||
					data["stage"] != string(stage) ||
					data["key"] != "/a" || data["contract"] != "article" ||
					data["attempts"] != 1.0 ||
					strings.Contains(string(got.body), "secret body") {
					t.Errorf("got %s %s, want url %v, Type %v, id %v, stage %v, key /a, contract article, attempts 1 "+
						"and no \"secret body\"", got.url, got.body, hook, "message."+string(stage),
						id.String(),
						string(stage))
				}

				if wants := stage == weir.Dead; wants != (data["reason"] == "400 no such path") {
					t.Errorf("stage %s: got the reason %v, want \"400 no such path\" only if dead",
						stage, data["reason"])
				}

				seconds, _ := strconv.ParseInt(got.seconds, 10, 64)
				if want := secretOf(t, knownSecret).Sign(got.id, time.Unix(seconds, 0), got.body); got.sign != want ||
					seconds != got.at.Unix() {
					t.Errorf("got the signature %s with the time %d, want %s", got.sign,
						seconds, want)
				}

				passTime(time.Minute)
				w.checkOutboxEmpty()
			})
		})
	}
}

// A receiver's span belongs to the trace of the upstream's request, as the CMS's does.
func TestSender_CarriesTheTraceOfTheMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(time.Second)
		events := w.receiver.listEvents()
		if len(events) != 1 || events[0].trace != traceParent+" vendor=1" {
			t.Errorf("got %+v, want one event with the message's trace", events)
		}
	})
}

func TestSender_MessagesWithoutACallbackMakeNoEvent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.commitFinal(weir.Delivered, w.appendMessage(""))
		w.commitFinal(weir.Dead, w.appendMessage(""))
		passTime(time.Second)
		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 0 {
			t.Error("got a request to a receiver, want none")
		}
	})
}

// If the settings have a secret for a host, the requests to this host must be signed with this
// secret.
func TestSender_SignsByTheSecretOfTheHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		keys := map[string]string{"": knownSecret,
			"hooks.example.com":  "whsec_" + strings.Repeat("b", 32),
			"*.slow.example.com": "whsec_" + strings.Repeat("c", 32),
			"a.slow.example.com": "whsec_" +
				strings.Repeat("d", 32)}

		w.startSender(func(c *notify.Config) {
			c.Callbacks.AllowedHosts = []string{"hooks.example.com", "*.slow.example.com",
				"a.slow.example.com", "plain.example.com"}
			c.Callbacks.HostSecrets = map[string]notify.Secret{}
			for host, key := range keys {
				if host != "" {
					c.Callbacks.HostSecrets[host] = secretOf(t, key)
				}
			}
		})

		by := map[string]string{"https://hooks.example.com/x": keys["hooks.example.com"],
			"https://HOOKS.example.com:443/y": keys["hooks.example.com"],
			"https://b.slow.example.com/":     keys["*.slow.example.com"],
			"https://a.slow.example.com/":     keys["a.slow.example.com"],
			"https://plain.example.com/":      keys[""]}
		for address := range by {
			w.commitFinal(weir.Delivered, w.appendMessage(address))
		}

		passTime(time.Minute)
		all := w.receiver.listEvents()
		if len(all) != len(by) {
			t.Fatalf("got %d events, want %d", len(all), len(by))
		}

		for _, e := range all {
			seconds, err := strconv.ParseInt(e.seconds, 10, 64)
			if err != nil {
				t.Fatal(err)
			}

			if want := secretOf(t, by[e.url]).Sign(e.id, time.Unix(seconds, 0), e.body); e.sign !=
				want {
				t.Errorf("%s: got signature %s, want %s", e.url, e.sign, want)
			}
		}
	})
}

// For a single callback, the Sender makes six calls of storage: it reads the control rows, acquires
// the lease, reads the outbox, reads the message, removes the event's row together with the marker,
// and releases the lease.
func TestSender_CostsSixCalls(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender()
		var calls []string
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			calls = append(calls, c.Port+" "+c.Op)
			return storagetest.Fault{}
		})

		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(time.Hour)
		want := []string{"table Range", "leases Acquire", "table Range", "table Get",
			"table Transact", "leases Release"}
		if w.checkOutboxEmpty(); !slices.Equal(calls, want) {
			t.Errorf("got calls %v, want %v", calls, want)
		}
	})
}

func TestSender_TriesAgainByTheSchedule(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(answerStatus(500))
		began := time.Now()
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(6 * time.Hour)
		var waits []time.Duration
		all := w.receiver.listEvents()
		for i, e := range all {
			if e.id != all[0].id || string(e.body) != string(all[0].body) {
				t.Errorf("try %d has the id %s and the body %s, want the id %v and the body %v", i,
					e.id, e.body, all[0].id,
					string(all[0].body))
			}

			if i > 0 {
				waits = append(waits, e.at.Sub(all[i-1].at).Round(time.Second))
			}
		}

		want := []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute,
			10 * time.Minute,
			30 * time.Minute, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}
		if len(waits) < 9 || !slices.Equal(waits[:9], want[:9]) {
			t.Errorf("got the waits %v, want them to begin with %v", waits, want[:9])
		}

		passTime(73*time.Hour - time.Since(began))
		n := len(w.receiver.listEvents())
		if w.checkOutboxEmpty(); n < 74 || n > 78 ||
			w.seen.countOf("message.delivered given_up") != 1 {
			t.Errorf("got %d tries in three days and the outcomes %+v; want 74 to 78 tries and given_up once", n,
				w.seen.n)
		}

		if passTime(24 * time.Hour); len(w.receiver.listEvents()) != n {
			t.Errorf("got %d tries, want %d: none after the event was given up",
				len(w.receiver.listEvents()), n)
		}
	})
}

func TestSender_SendsAllEventsWhenTheReceiverIsBack(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(refuseConnection)
		var ids []weir.ID
		for range 300 {
			ids = append(ids, w.appendMessage(hook))
		}

		w.commitFinal(weir.Delivered, ids...)
		passTime(10 * time.Minute)
		away := len(w.receiver.listEvents())
		if n, hasMarker := w.countRows(); n != 300 || !hasMarker {
			t.Fatalf("the outbox has %d rows and a marker: %v, want 300 and true", n, hasMarker)
		}

		if away > 20 {
			t.Errorf("got %d requests to a host that does not answer, want at most 20", away)
		}

		w.receiver.setAnswer(answerStatus(200))
		passTime(time.Hour)
		told := map[string]int{}
		for _, e := range w.receiver.listEvents()[away:] {
			told[fmt.Sprint(e.event.Data["id"])]++
		}

		for _, id := range ids {
			if told[id.String()] != 1 {
				t.Errorf("the receiver got the event of %s %d times, want 1", id, told[id.String()])
			}
		}

		w.checkOutboxEmpty()
	})
}

func TestSender_RespectsRetryAfter(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(func(*http.Request) (int, http.Header, error) {
			return 503, http.Header{"Retry-After": {"90"}}, nil
		})
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(89 * time.Second)
		if n := len(w.receiver.listEvents()); n != 1 {
			t.Fatalf("got %d requests before the end of Retry-After, want 1", n)
		}

		w.receiver.setAnswer(answerStatus(200))

		if passTime(3 * time.Second); len(w.receiver.listEvents()) != 2 {
			t.Errorf("got %d requests after the end of Retry-After, want 2",
				len(w.receiver.listEvents()))
		}

		w.checkOutboxEmpty()
	})
}

func TestSender_GoneEndsIt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(answerStatus(410))
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(time.Hour)

		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 1 ||
			w.seen.countOf("message.delivered gone") != 1 {
			t.Errorf("got %d requests and the outcomes %+v, want one request and gone once",
				len(w.receiver.listEvents()), w.seen.n)
		}
	})
}

func TestSender_FollowsNoRedirect(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(func(*http.Request) (int, http.Header, error) {
			return 302, http.Header{"Location": {"https://elsewhere.example.com/"}}, nil
		})
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(4 * time.Second)

		if all := w.receiver.listEvents(); len(all) != 1 ||
			w.seen.countOf("message.delivered retry") != 1 {
			t.Errorf("got the requests %+v, want one, with the outcome retry", all)
		}
	})
}

func TestSender_ASlowReceiverDelaysNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.receiver.setAnswer(func(r *http.Request) (int, http.Header, error) {
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
		for range 1300 { // more events than one read of the outbox returns
			slow = append(slow, w.appendMessage("https://a.slow.example.com/"))
		}

		w.commitFinal(weir.Delivered, slow...)
		passTime(time.Second)

		for n := range 20 {
			began := time.Now()
			id := w.appendMessage(hook)
			w.commitFinal(weir.Delivered, id)
			passTime(time.Second)
			all := w.receiver.listEvents()
			isOfID := func(e receivedEvent) bool { return e.event.Data["id"] == id.String() }
			if i := slices.IndexFunc(all, isOfID); i < 0 ||
				all[i].at.Sub(began) > time.Second {
				t.Fatalf("the event of message %d was not sent within 1 s, want it sent: it waited for the slow "+
					"receiver", n)
			}

			passTime(3 * time.Second)
		}

		if n := w.receiver.maxAtOnce(); n > 3 {
			t.Errorf("got %d requests at the same time, want at most 3", n)
		}

		passTime(4 * time.Hour)
		w.checkOutboxEmpty()
	})
}

// The first process can no longer reach storage after a number of calls, as in a crash. The next
// process must send the remaining events.
func TestSender_SendsEachEventAcrossCrashes(t *testing.T) {
	for crash := range 14 {
		t.Run(fmt.Sprint(crash), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				first := w.startSender()
				n := 0
				first.faults.Set(func(storagetest.Call) storagetest.Fault {
					if n++; n > crash {
						return storagetest.Fault{Kind: storagetest.FailBefore}
					}
					return storagetest.Fault{}
				})

				ids := []weir.ID{w.appendMessage(hook), w.appendMessage(hook),
					w.appendMessage(hook)}
				w.commitFinal(weir.Delivered, ids[:2]...)
				passTime(100 * time.Millisecond)
				w.commitFinal(weir.Dead, ids[2])
				passTime(20 * time.Second)
				second := w.startSender()
				for range 3 { // sweeps
					c, err := w.store.ReadControl(t.Context(), 0)
					if err != nil {
						t.Fatal(err)
					}
					second.ObserveLane(0, c)
					passTime(time.Minute)
				}

				for _, id := range ids {
					webhooks := map[string]bool{}
					for _, e := range w.receiver.listEvents() {
						if e.event.Data["id"] == id.String() {
							webhooks[e.id] = true
						}
					}

					if len(webhooks) != 1 {
						t.Errorf("the event of %s was sent with the ids %v, want one id",
							id, webhooks)
					}
				}

				w.checkOutboxEmpty()
			})
		})
	}
}

// After a failed read of the outbox, the marker must stay, even if all requests in flight succeed.
func TestSender_AFailedReadIsNoEmptyOutbox(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender()
		w.receiver.setAnswer(func(*http.Request) (int, http.Header, error) {
			time.Sleep(3 * time.Second)
			return 200, nil,
				nil
		})

		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(time.Second)
		p.faults.Once(func(c storagetest.Call) bool { return c.Op == "Range" && c.Key == "n_" },
			storagetest.Fault{Kind: storagetest.FailBefore})
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		passTime(3 * time.Second)
		if n, hasMarker := w.countRows(); n != 1 || !hasMarker {
			t.Errorf("the outbox has %d rows and a marker: %v, want 1 and true", n, hasMarker)
		}

		passTime(time.Minute)
		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 2 {
			t.Errorf("the receiver got %d events, want 2", len(w.receiver.listEvents()))
		}
	})
}

// If the Sender cannot read the message of an event, the event and the marker must stay in the
// outbox, even if all other events were sent.
func TestSender_AMessageThatCannotBeReadIsNotForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender()
		w.receiver.setAnswer(func(*http.Request) (int, http.Header, error) {
			time.Sleep(time.Second)
			return 200, nil, nil
		})

		ids := []weir.ID{w.appendMessage(hook), w.appendMessage(hook)}
		p.faults.Once(func(c storagetest.Call) bool {
			return c.Op == "Get" &&
				c.Key == "m_"+lane.OrderPos(ids[0].Seq)
		},
			storagetest.Fault{Kind: storagetest.FailBefore})

		w.commitFinal(weir.Delivered, ids...)
		passTime(1500 * time.Millisecond)
		if n, hasMarker := w.countRows(); n != 1 || !hasMarker {
			t.Errorf("the outbox has %d rows and a marker: %v, want 1 and true", n, hasMarker)
		}

		passTime(time.Minute)
		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 2 {
			t.Errorf("the receiver got %d events, want 2", len(w.receiver.listEvents()))
		}
	})
}

// If two processes know of the events of an outbox, each event must still be sent only once.
func TestSender_TwoProcessesShareAnOutbox(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.startSender(), w.startSender()
		var ids []weir.ID
		for range 120 {
			ids = append(ids, w.appendMessage(hook))
		}

		w.commitFinal(weir.Delivered, ids...)
		a.WakeOutbox(0)
		b.WakeOutbox(0)
		passTime(time.Minute)
		if n := len(w.receiver.listEvents()); n != len(ids) {
			t.Errorf("got %d requests for %d messages, want %v", n, len(ids), len(ids))
		}

		w.checkOutboxEmpty()
	})
}

func TestSender_SendsDeathsToTheirReceivers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		key := secretOf(t, knownSecret)
		w.startSender(func(c *notify.Config) {
			c.Receivers = []notify.Receiver{
				{URL: "https://ops.example.com/all", Secret: key,
					Events: []string{notify.MessageDead}},
				{URL: "https://ops.example.com/articles", Secret: key,
					Events: []string{notify.MessageDead}, Contracts: []string{"article"}},
				{URL: "https://ops.example.com/others", Secret: key,
					Events: []string{notify.MessageDead}, Contracts: []string{"other"}},
				{URL: "https://ops.example.com/lanes", Secret: key,
					Events: []string{notify.LanePaused}},
			}
		})

		w.commitFinal(weir.Dead, w.appendMessage(hook))
		w.commitFinal(weir.Delivered, w.appendMessage(""))
		passTime(time.Second)
		var urls []string
		ids := map[string]bool{}
		for _, e := range w.receiver.listEvents() {
			urls, ids[e.id] = append(urls, e.url), true
		}

		slices.Sort(urls)

		if want := []string{hook, "https://ops.example.com/all",
			"https://ops.example.com/articles"}; !slices.Equal(urls, want) || len(ids) != 1 {
			t.Errorf("got %v with ids %v, want %v with one id", urls, ids, want)
		}

		passTime(time.Minute)
		w.checkOutboxEmpty()
	})
}

func TestSender_DropsEventsWithoutAReceiver(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startSender()
		w.commitFinal(weir.Delivered, w.appendMessage("https://was-allowed.example.com/"))
		passTime(time.Minute)

		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 0 ||
			w.seen.countOf("message.delivered dropped") != 1 {
			t.Errorf("got the outcomes %+v, want no request and dropped once", w.seen.n)
		}
	})
}

// WaitIdle must wait until each due event was tried, or until WaitIdle's context ends.
func TestSender_WaitIdle(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		s := w.startSender()
		w.receiver.setAnswer(func(*http.Request) (int, http.Header, error) {
			time.Sleep(2 * time.Second)
			return 200, nil,
				nil
		})

		w.commitFinal(weir.Delivered, w.appendMessage(hook), w.appendMessage(hook),
			w.appendMessage(hook), w.appendMessage(hook), w.appendMessage(hook))
		s.WaitIdle(t.Context())
		if w.checkOutboxEmpty(); len(w.receiver.listEvents()) != 5 {
			t.Errorf("the receiver got %d events, want 5", len(w.receiver.listEvents()))
		}

		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.commitFinal(weir.Delivered, w.appendMessage(hook))
		if s.WaitIdle(limited); limited.Err() == nil {
			t.Error("WaitIdle returned before the receiver had answered, want it to wait for the answer")
		}

		passTime(10 * time.Second)
	})
}
