package overview_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// searchAll reads all pages of a search, and checks the size and the token of each page.
func (w *world) searchAll(f overview.Filter, limit int) []weir.Status {
	w.t.Helper()
	var all []weir.Status
	token := ""
	for calls := 0; ; calls++ {
		found, err := w.all.Search(w.t.Context(), f, limit, token)
		if err != nil {
			w.t.Fatalf("search %+v: got %v, want no error", f, err)
		}

		if len(found.Messages) > limit || found.Complete != (found.Continue == "") {
			w.t.Fatalf("search %+v: got %d messages, Complete %v, Continue %q, want at most %v messages, and either "+
				"Complete or a Continue", f, len(found.Messages), found.Complete,
				found.Continue, limit)
		}

		all = append(all, found.Messages...)
		if found.Complete {
			return all
		}

		if token = found.Continue; calls > 2000 {
			w.t.Fatalf("search %+v: got a Continue after %d calls, want the end within 2000", f,
				calls)
		}
	}
}

// readAll reads each message by its id, so that tests can compare Search with another way of
// reading.
func (w *world) readAll() []weir.Status {
	w.t.Helper()
	var all []weir.Status
	for n := range w.store.Lanes {
		for seq := int64(1); ; {
			entries, err := w.store.ReadLog(w.t.Context(), n, seq, 1000)
			if err != nil {
				w.t.Fatal(err)
			}

			for _, e := range entries {
				all = append(all, w.readStatus(e.Message.ID))
			}

			if len(entries) == 0 {
				break
			}

			seq += int64(len(entries))
		}
	}

	return all
}

// checkFound checks the found messages. Each message in "all" for which "want" returns true must be
// found once, with its state. The newest message must be first.
func (w *world) checkFound(what string, found []weir.Status, want func(weir.Status) bool,
	all []weir.Status) {
	w.t.Helper()
	missing := map[weir.ID]weir.Status{}
	for _, st := range all {
		if want(st) {
			missing[st.Message.ID] = st
		}
	}

	n := len(missing)

	for i, st := range found {
		truth, ok := missing[st.Message.ID]
		if !ok {
			w.t.Errorf("%s: found message %d of key %q (%s), want each matching message once", what,
				st.Message.ID.Seq, st.Message.Key, st.Stage)
			continue
		}

		delete(missing, st.Message.ID)

		if st.Stage != truth.Stage || st.AttemptCount != truth.AttemptCount ||
			st.CMSStatus != truth.CMSStatus ||
			st.LastError != truth.LastError ||
			!st.FinishedAt.Equal(truth.FinishedAt) ||
			!st.NextAttemptAt.Equal(truth.NextAttemptAt) ||
			st.SupersededBy != truth.SupersededBy || st.Message.Size != truth.Message.Size {
			w.t.Errorf("%s: got %+v, want Stage %v, AttemptCount %v, CMSStatus %v, LastError %v, FinishedAt %v, "+
				"NextAttemptAt %v, SupersededBy %v and Size %v", what, st, truth.Stage,
				truth.AttemptCount,
				truth.CMSStatus, truth.LastError, truth.FinishedAt, truth.NextAttemptAt,
				truth.SupersededBy,
				truth.Message.Size)
		}

		if i > 0 && found[i-1].Message.AcceptedAt.Before(st.Message.AcceptedAt) {
			w.t.Errorf("%s: got a message of %v before one of %v, want the newest first", what,
				found[i-1].Message.AcceptedAt,
				st.Message.AcceptedAt)
		}
	}

	if len(missing) > 0 {
		w.t.Errorf("%s: %d of %d matching messages were not found, want all", what, len(missing), n)
	}
}

// oddKeys are keys that a search could handle wrongly: an empty key, a very long key, keys that
// contain parts of row keys, and keys with characters that must be escaped.
var oddKeys = []string{"", "a", "a_b", "~", "r_", "ok/%2F?&=#", "'; drop", "ключ",
	"late/ \u202eabc", "bad/<img src=x>", strings.Repeat("k", 1000), "late/_x_", "bad/\"quoted\""}

// appendAllKinds appends n messages with various keys, and drains the lanes after two thirds of the
// messages. At the end, the messages have all stages except discarded.
func (w *world) appendAllKinds(n int, dice *rand.Rand) {
	w.t.Helper()
	var scheduled []weir.ID
	for i := range n {
		key := oddKeys[dice.IntN(len(oddKeys))]
		switch dice.IntN(12) {
		case 0:
			scheduled = append(scheduled,
				w.appendMessage(key, withDelay(time.Hour+time.Duration(dice.IntN(1e9)))))
		case 1:
			w.appendMessage(fmt.Sprintf("bad/%d", i%40))
		case 2:
			w.appendMessage("version", func(m *weir.Message) {
				m.Supersede, m.Version = true,
					fmt.Sprint(dice.IntN(50))
			})

		case 3:
			w.appendMessage(fmt.Sprint("ok/", i), withBody("<a>Nadel im Heu "+fmt.Sprint(i)+"</a>"),
				func(m *weir.Message) { m.Contract = "picture" })
		case 4:
			w.appendMessage(key)
		case 5:
			w.appendMessage(fmt.Sprint("late/", i%9))
		default:
			w.appendMessage(fmt.Sprint("ok/", i%100))
		}

		if dice.IntN(10) == 0 {
			time.Sleep(time.Second)
		}

		if i == n*2/3 {
			w.drainFor(time.Minute)
		}
	}

	for _, id := range scheduled[:len(scheduled)/2] {
		if _, err := w.store.Requests().Cancel(w.t.Context(), id); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestSearch_FindsEachMatch(t *testing.T) {
	for _, lanes := range []int{1, 3, 16} {
		t.Run(fmt.Sprint(lanes, "Lanes"), func(t *testing.T) {
			simulate(t, lanes, func(t *testing.T, w *world) {
				dice := rand.New(rand.NewPCG(1, uint64(lanes)))
				w.appendAllKinds(800, dice)
				all := w.readAll()
				byStage := map[weir.Stage]int{}
				for _, st := range all {
					byStage[st.Stage]++
				}

				for _, stage := range []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying,
					weir.Delivered, weir.Dead, weir.Cancelled, weir.Superseded} {
					if byStage[stage] < 2 {
						t.Fatalf("got the stages %v, want at least 2 %s", byStage, stage)
					}
					w.checkFound(string(stage),
						w.searchAll(overview.Filter{Stage: stage}, 1+dice.IntN(200)),
						func(st weir.Status) bool { return st.Stage == stage }, all)
				}

				w.checkFound("all", w.searchAll(overview.Filter{}, 1+dice.IntN(200)),
					func(weir.Status) bool { return true }, all)

				for _, key := range oddKeys[1:] {
					w.checkFound("key "+key, w.searchAll(overview.Filter{Key: key}, 50),
						func(st weir.Status) bool { return st.Message.Key == key }, all)
				}

				w.checkFound("contract", w.searchAll(overview.Filter{Contract: "picture"}, 7),
					func(st weir.Status) bool { return st.Message.Contract == "picture" }, all)
				n := dice.IntN(lanes)
				w.checkFound("lane", w.searchAll(overview.Filter{Lane: &n}, 50),
					func(st weir.Status) bool { return st.Message.ID.Lane == n }, all)
				w.checkFound("text of bodies", w.searchAll(overview.Filter{Text: "nADEL im"}, 50),
					func(st weir.Status) bool { return st.Message.Contract == "picture" }, all)
				w.checkFound("text of errors",
					w.searchAll(overview.Filter{Text: "OUT of order"}, 50),
					func(st weir.Status) bool { return st.LastError == "out of order" }, all)
				slices.SortFunc(all, func(a,
					b weir.Status) int {
					return a.Message.AcceptedAt.Compare(b.Message.AcceptedAt)
				})

				for range 4 {
					i, j := dice.IntN(len(all)), dice.IntN(len(all))
					from, to := all[min(i, j)].Message.AcceptedAt, all[max(i, j)].Message.AcceptedAt
					w.checkFound("span", w.searchAll(overview.Filter{From: from, To: to}, 100),
						func(st weir.Status) bool {
							return !st.Message.AcceptedAt.Before(from) &&
								st.Message.AcceptedAt.Before(to)
						}, all)
				}

				dead := all[slices.IndexFunc(all, func(st weir.Status) bool { return st.Stage == weir.Dead })]
				kind, _ := weir.Fingerprint(dead.Message.Contract, dead.CMSStatus, dead.LastError)
				w.checkFound("fingerprint", w.searchAll(overview.Filter{Fingerprint: kind}, 20),
					func(st weir.Status) bool {
						other, _ := weir.Fingerprint(st.Message.Contract, st.CMSStatus,
							st.LastError)
						return st.Stage == weir.Dead && other == kind
					}, all)
			})
		})
	}
}

func (w *world) countRequests(f func()) int {
	faults, n := storagetest.NewFaults(), 0
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		n++
		return storagetest.Fault{}
	})

	table := w.store.Table
	w.store.Table = faults.Table(table)
	f()
	w.store.Table = table

	return n
}

func (w *world) appendMany(n int, change func(i int, m *weir.Message)) {
	w.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w.appendMessage(fmt.Sprint("ok/", i), func(m *weir.Message) { change(i, m) })
		})
	}

	wg.Wait()
}

func TestSearch_IsBounded(t *testing.T) {
	simulate(t, 4, func(t *testing.T, w *world) {
		w.appendMany(10_000, func(i int, m *weir.Message) {
			if i == 5000 {
				m.Contract = "one"
			}
		})

		w.drainFor(time.Hour)

		for what, f := range map[string]overview.Filter{
			"all": {}, "no contract": {Contract: "none"}, "no text": {Text: "not there"},
			"no key":   {Key: "ok/none"},
			"retrying": {Stage: weir.Retrying}, "dead": {Stage: weir.Dead},
			"long ago": {To: time.Now().Add(-24 * time.Hour)},
		} {
			token := ""
			for calls := 0; ; calls++ {
				var found overview.SearchResult
				var err error
				queries := w.countRequests(func() {
					found,
						err = w.all.Search(t.Context(), f, 50, token)
				})
				if err != nil || queries > 20+4*8 || found.Examined > 24_000 {
					t.Fatalf("%s: got %d queries, %d rows, %v, want at most %d queries, 24,000 rows and no error",
						what, queries, found.Examined, err, 20+4*8)
				}

				if token = found.Continue; token == "" || what == "all" {
					break
				}

				if calls > 20 {
					t.Fatalf("%s: got a Continue after %d calls, want the end within 20",
						what, calls)
				}
			}
		}

		if got := w.searchAll(overview.Filter{Contract: "one"}, 50); len(got) != 1 ||
			got[0].Message.Key != "ok/5000" ||
			got[0].Stage != weir.Delivered {
			t.Errorf("contract one: got %+v, want the delivered message of ok/5000 alone", got)
		}

		if queries := w.countRequests(func() { w.searchAll(overview.Filter{Stage: weir.Retrying}, 50) }); queries > 8 {
			t.Errorf("stage retrying: got %d queries, want at most 8", queries)
		}

		if queries := w.countRequests(func() {
			w.searchAll(overview.Filter{Key: "ok/17", To: time.Now().Add(-time.Hour)},
				50)
		}); queries > 20 {
			t.Errorf("before the first message: got %d queries, want at most 20", queries)
		}
	})
}

func TestSearch_IsBoundedInOneLane(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.insertRows("m_", 16_000, map[string]any{"Stage": "queued", "Contract": "article",
			"Nonce":      "00112233445566778899",
			"AcceptedAt": time.Now()})
		var found overview.SearchResult
		var err error
		queries := w.countRequests(func() {
			found, err = w.all.Search(t.Context(), overview.Filter{Contract: "none"}, 50,
				"")
		})
		if err != nil || found.Complete || queries > 26 || found.Examined < 9000 {
			t.Errorf("got %d queries, %d rows, Complete %v, %v, want at most 26 queries, at least 9000 rows, Complete "+
				"false and no error", queries, found.Examined, found.Complete, err)
		}
	})
}

func TestSearch_WhileMessagesCome(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.appendMany(300, func(int, *weir.Message) {})
		first, err := w.all.Search(t.Context(), overview.Filter{}, 100, "")
		if err != nil {
			t.Fatal(err)
		}

		w.appendMany(300, func(int, *weir.Message) {})
		seen := map[weir.ID]bool{}
		for found := first; ; {
			for _, st := range found.Messages {
				if seen[st.Message.ID] || st.Message.ID.Seq < 1 {
					t.Errorf("found %v, found before: %t; want it once, with a sequence number",
						st.Message.ID, seen[st.Message.ID])
				}
				seen[st.Message.ID] = true
			}

			if found.Complete {
				break
			}

			if found, err = w.all.Search(t.Context(), overview.Filter{}, 100, found.Continue); err != nil {
				t.Fatal(err)
			}
		}

		if len(seen) != 300 {
			t.Errorf("found %d of the messages from before the search, want 300", len(seen))
		}
	})
}

func TestSearch_Continue(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		w.appendMany(200, func(int, *weir.Message) {})
		f := overview.Filter{Contract: "article"}
		found, err := w.all.Search(t.Context(), f, 10, "")
		if err != nil || found.Continue == "" {
			t.Fatalf("got %+v, %v, want a Continue and no error", found, err)
		}

		refused := func(what string, f overview.Filter, token string) {
			t.Helper()
			if _, err := w.all.Search(t.Context(), f, 10, token); weir.KindOf(err) !=
				weir.Malformed {
				t.Errorf("%s: got %v, want an error of kind Malformed", what, err)
			}
		}

		refused("of another filter", overview.Filter{}, found.Continue)
		refused("nonsense", f, "nonsense!")
		refused("short", f, "AAAA")

		for i := range len(found.Continue) {
			b := []byte(found.Continue)
			if b[i]++; b[i] == 'z'+1 || b[i] == 'Z'+1 || b[i] == '9'+1 {
				b[i] = 'A'
			}
			refused(fmt.Sprint("changed at ", i), f, string(b))
			refused(fmt.Sprint("cut at ", i), f, found.Continue[:i]+" ")
		}

		next, err := w.all.Search(t.Context(), f, 10, found.Continue)
		if err != nil || len(next.Messages) != 10 ||
			next.Messages[0].Message.ID == found.Messages[9].Message.ID {
			t.Errorf("second page: got %+v, %v, want 10 messages that do not begin with %v, and no error", next, err,
				found.Messages[9].Message.ID)
		}
	})
}

func TestSearch_Bodies(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		noise := func(n int) string {
			var b strings.Builder
			for range n {
				b.WriteByte(byte('a' + rand.IntN(26)))
			}
			return b.String()
		}

		w.appendMessage("blob", withBody("<a>needle"+noise(200<<10)+"</a>"))
		want := map[string]bool{}
		for i := range 40 { // more bytes than one call of Search reads
			key := fmt.Sprint("large/", i)
			text := "<a>" + strings.Repeat("hay ", 128<<10) + "</a>"
			if i%10 == 0 {
				text, want[key] = "<a>"+strings.Repeat("hay ", 128<<10)+"NeeDle</a>", true
			}
			w.appendMessage(key, withBody(text))
		}

		units := utf16.Encode([]rune("\ufeff<a>needle of ß</a>"))
		wide := make([]byte, 0, 2*len(units))
		for _, u := range units {
			wide = append(wide, byte(u>>8), byte(u))
		}

		w.appendMessage("wide", func(m *weir.Message) { m.Body = wide })
		w.appendMessage("latin",
			withBody("<?xml version='1.0' encoding='ISO-8859-1'?><a>needle \xfcber</a>"))
		want["wide"], want["latin"] = true, true
		calls, notSearched, token := 0, 0, ""
		for {
			found, err := w.all.Search(t.Context(), overview.Filter{Text: "needle"}, 50, token)
			if err != nil {
				t.Fatal(err)
			}

			for _, st := range found.Messages {
				if !want[st.Message.Key] || st.Message.Body != nil {
					t.Errorf("found %q with %d bytes of body, want only keys with the text, once, without a body",
						st.Message.Key, len(st.Message.Body))
				}
				delete(want, st.Message.Key)
			}

			notSearched += found.BodiesSkipped
			calls++
			if token = found.Continue; token == "" {
				break
			}
		}

		if len(want) > 0 || calls < 3 || notSearched != 1 {
			t.Errorf("did not find %v, made %d calls and skipped %d bodies; want all found, 3 calls or more, 1 "+
				"skipped body",
				want, calls, notSearched)
		}

		if got := w.searchAll(overview.Filter{Text: "ÜBER"}, 5); len(got) != 1 ||
			got[0].Message.Key != "latin" {
			t.Errorf("a letter of ISO-8859-1: found %d messages, want the message of key latin alone", len(got))
		}
	})
}

func TestSearch_AfterRetention(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.appendMessage("bad/old")
		w.appendMany(3000, func(int, *weir.Message) {})
		w.appendMessage("bad/older")
		w.drainFor(time.Minute)
		time.Sleep(2 * time.Hour)
		r := &lane.Retention{Store: w.store, KeepFinal: time.Hour, KeepDead: 1000 * time.Hour,
			TimeShare: time.Minute}
		if _, err := r.RunLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		w.appendMany(20, func(int, *weir.Message) {})

		for _, f := range []overview.Filter{{}, {Key: "bad/old"}, {Stage: weir.Dead},
			{To: time.Now().Add(-time.Hour)}} {
			var got []weir.Status
			queries := w.countRequests(func() { got = w.searchAll(f, 100) })
			want := map[bool]int{true: 22, false: 2}[f == overview.Filter{}]
			if f.Key != "" {
				want = 1
			}

			if len(got) != want || got[len(got)-1].Message.Key != "bad/old" || queries > 40 {
				t.Errorf("%+v: found %d messages in %d queries, want %d, the last of key bad/old, in at most 40 "+
					"queries", f,
					len(got), queries, want)
			}
		}
	})
}
