package dashboard

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

func allText(all []token) string {
	var b strings.Builder
	for _, t := range all {
		b.WriteString(t.Text)
	}
	return b.String()
}

func FuzzTokens(f *testing.F) {
	for _, seed := range []string{`<a b="1>2" c='"'>x<!-- > --><![CDATA[<y>]]><d/></a>`, "<", "<a",
		"<!--", "<![CDATA[", "a<b>c", "<?xml?>\n<a>\n <b/>\n</a>", "</a></a><b>", "<a b='"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if got := allText(tokenizeXML(text)); got != text {
			t.Errorf("the tokens of %q have the text %q, want the same text", text, got)
		}

		// indentXML changes only white space.
		bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := allText(indentXML(text)); bare(got) != bare(text) {
			t.Errorf("the indented form of %q is %q, want the same text apart from spaces", text,
				got)
		}
	})
}

func TestIndentXML(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`<a><b>x</b><c/><d></d></a>`:              "<a>\n  <b>x</b>\n  <c/>\n  <d></d>\n</a>",
		`<p>some <em>text</em> here</p>`:          `<p>some <em>text</em> here</p>`,
		"<a>\n\n<b  x='>'/>\n</a>":                "<a>\n  <b  x='>'/>\n</a>",
		`<?xml version="1.0"?><!-- c --><a/>`:     "<?xml version=\"1.0\"?>\n<!-- c -->\n<a/>",
		`<a><b>cut o`:                             "<a>\n  <b>\n    cut o",
		`<a><![CDATA[ <x> ]]></a>`:                `<a><![CDATA[ <x> ]]></a>`,
		strings.Repeat("<a>", 3) + "</a></a></a>": "<a>\n  <a>\n    <a></a>\n  </a>\n</a>",
	} {
		if got := allText(indentXML(text)); got != want {
			t.Errorf("the indented form of %s is\n%s\nwant\n%s", text, got, want)
		}
	}
}

// The time of indentXML grows with the number of nested elements, not with the square of this
// number. The test compares the shortest of several runs, because a busy machine delays some runs.
func TestIndentXML_CostsLittle(t *testing.T) {
	t.Parallel()
	measure := func(levels int) time.Duration {
		deep := strings.Repeat("<a>", levels)
		began := time.Now()

		if got := allText(indentXML(deep)); len(got) < len(deep) {
			t.Errorf("indentXML turned %d bytes into %d, want at least %v", len(deep),
				len(got), len(deep))
		}
		return time.Since(began)
	}

	const levels, factor, most = shownBytes / 3, 32, 256
	long, short, ratio := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64), math.Inf(1)
	for try := 0; try < 40 && ratio > most; try++ {
		long, short = min(long, measure(levels)), min(short, measure(levels/factor))
		ratio = float64(long) / float64(short)
	}

	if ratio > most {
		t.Errorf("%d times the levels took %.1f times the time, want %d times at most", factor,
			ratio, most)
	}
}

func TestFirstPart(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("ü", shownBytes)
	if part, cut := firstPart("x" + text); !cut || !strings.HasSuffix(part, "ü") ||
		len(part) > shownBytes {
		t.Errorf("got a part of %d bytes and cut %v; want a cut part that ends with \"ü\" and has at most %v bytes",
			len(part), cut, shownBytes)
	}

	if part, cut := firstPart("short"); cut || part != "short" {
		t.Errorf("got %q %v, want short and false", part, cut)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a\u202eb": "a⟨U+202E⟩b", "\x00": "⟨U+0000⟩",
		"ü\t\n漢": "ü\t\n漢", "\xff": "⟨U+FFFD⟩", "a\u00adb": "a⟨U+00AD⟩b"} {
		if got := Show(text); got != want {
			t.Errorf("Show(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for got, want := range map[string]string{
		formatCount(int64(1234567)): "1\u202f234\u202f567", formatCount(-1234): "−1\u202f234",
		formatCount(999):                  "999",
		formatPlural(1, "key", "keys"):    "1 key",
		formatPlural(1000, "key", "keys"): "1\u202f000 keys",
		spanText(1500 * time.Microsecond): "1 ms", spanText(90 * time.Second): "1 min 30 s",
		spanText(26 * time.Hour): "1 d 2 h", spanText(200 * time.Microsecond): "0.2 ms",
		formatAgo(now.Add(-time.Minute), now):                        "1 min ago",
		formatAgo(now.Add(2*time.Second), now):                       "in 2.0 s",
		formatAgo(time.Time{}, now):                                  "never",
		formatTime(now.Add(-time.Hour), now):                         "11:00:00",
		formatTime(now.AddDate(0, 0, -1), now):                       "28 Feb 12:00:00",
		formatTime(now.AddDate(-1, 0, 0), now):                       "1 Mar 2025 12:00",
		formatTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), now): "no end",
		formatRate(0.04):                                             "0.0",
		formatRate(1234.4):                                           "1\u202f234",
		formatPercent(0.0004):                                        "< 0.1 %",
		formatPercent(0.5):                                           "50 %",
		formatMoney(0.001):                                           "< 0.01 USD",
		bytesText(2048):                                              "2.0 KiB",
		truncateText(3, "äöüß"):                                      "äöü…",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMeter(t *testing.T) {
	t.Parallel()
	m := newMeter(Step{Accepted: 1000, Delivered: 900,
		Transactions: map[string]int64{"table transact": 2000, "queue put": 500, "blob put": 100,
			"blob lease-renew": 300, "blob delete": 50}})

	// The price of 10,000 transactions is 0.00036 for tables, 0.004 for queues and leases, and 0.05
	// for writes of blobs. Deletions are free.
	want := (2000*0.00036 + 800*0.004 + 100*0.05) / 10_000 / 1000 * 1e6
	if m.Transactions != 2950 || m.PerMessage != 2.95 || math.Abs(m.PerMillion-want) > 1e-9 ||
		m.Tables != 2000 ||
		m.Queues != 500 || m.Blobs != 450 {
		t.Errorf("got %+v, want the price %v for a million messages", m, want)
	}

	if m := newMeter(Step{Transactions: map[string]int64{"table query": 3}}); m.Known {
		t.Errorf("got %+v, want Known false", m)
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	times := []time.Time{time.Unix(0, 0), time.Unix(60, 0), time.Unix(120, 0), time.Unix(180, 0)}
	s := []series{{Name: "a", values: []float64{1, math.NaN(), 3, 10}}}
	c := drawChart("x", "X", "things", linearAxis(formatRate, s...), times, s)
	if got := c.Series[0].Dots + " and " +
		c.Series[0].Line; got != "M75.0 126.0h0.1 and M75.0 126.0 M375.0 98.0 L525.0 0.0" {
		t.Errorf("got the line %s, want \"M75.0 126.0h0.1 and M75.0 126.0 M375.0 98.0 L525.0 0.0\"",
			got)
	}

	if len(c.Columns) != 4 || c.Columns[1].Texts[0] != "–" || c.Empty || c.Grid[0].Label != "10" ||
		c.Grid[2].Y != "140.0" {
		t.Errorf("got %+v, want 4 Columns, – in the second, Empty false, Label 10 and Y 140.0", c)
	}

	if a := logAxis(series{values: []float64{0.5, 2500}}); a.top != 10_000 ||
		a.scaleY(1) != plotHeight ||
		a.scaleY(10_000) != 0 || len(a.gridLines()) != 5 {
		t.Errorf("got %+v, want the top 10,000 and 5 lines", a)
	}
}

func TestMessageEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := wire.Message{Stage: weir.Delivered, AcceptedAt: at, DeliverAt: at.Add(time.Hour),
		Edited:     wire.Edit{At: at.Add(3 * time.Hour), Note: "note"},
		FinishedAt: at.Add(4 * time.Hour), Replays: 1,
		AttemptLog: []wire.Attempt{{At: at.Add(time.Hour), Outcome: weir.OutcomeUnavailable},
			{Number: 1, At: at.Add(time.Hour), Outcome: weir.OutcomeRetry},
			{Number: 1, At: at.Add(time.Hour), Outcome: weir.OutcomeUnavailable},
			{Number: 7, At: at.Add(2 * time.Hour), Outcome: weir.OutcomeRejected},
			{Number: 8, At: at.Add(4 * time.Hour), Outcome: weir.OutcomeDelivered}}}

	var told []string
	for _, e := range messageEvents(m, at.Add(5*time.Hour)) {
		told = append(told, e.Title+"/"+e.Wait+"/"+e.Gap)
	}

	want := "Accepted// | Due/1 h/ | Not counted// | Attempt 1: failed, to be tried again// | Not counted// | Attempt 7: rejected/1 h/5 attempts are not kept | Edited, to be replayed/1 h/ | Attempt 8: delivered/1 h/dead, then replayed | Delivered//"
	if got := strings.Join(told, " | "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestMessageEvents_Replays(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 3, 1, hour, 0, 0, 0, time.UTC) }
	used, again := wire.Attempt{Number: 5, At: at(2), Outcome: weir.OutcomeRetry},
		wire.Attempt{Number: 6, At: at(4), Outcome: weir.OutcomeDelivered}
	rejected := wire.Attempt{Number: 5, At: at(2), Outcome: weir.OutcomeRejected}
	const begins = "Accepted | Attempt 5: "
	for name, c := range map[string]struct {
		m    wire.Message
		want string
	}{
		"Done": {wire.Message{Stage: weir.Delivered, AttemptLog: []wire.Attempt{used, again},
			FinishedAt: at(4),
			Replays:    1}, begins +
			"failed, to be tried again | Replayed | Attempt 6: delivered | Delivered"},
		"Rejected": {wire.Message{Stage: weir.Delivered,
			AttemptLog: []wire.Attempt{rejected, again}, FinishedAt: at(4),
			Replays: 1}, begins + "rejected | Replayed | Attempt 6: delivered | Delivered"},
		"Granted": {wire.Message{Stage: weir.Queued, AttemptLog: []wire.Attempt{used}, Replays: 1},
			begins + "failed, to be tried again | Replayed | Waits, having been replayed"},
		"Waiting": {wire.Message{Stage: weir.Dead, AttemptLog: []wire.Attempt{used},
			FinishedAt: at(2)}, begins + "failed, to be tried again | Dead | Replay asked for"},
		"Refused": {wire.Message{Stage: weir.Dead, AttemptLog: []wire.Attempt{used},
			FinishedAt:    at(2),
			ReplayRefused: "a later one"},
			begins + "failed, to be tried again | Dead | Replay asked for: a later one"},
		"DeadAgain": {wire.Message{Stage: weir.Dead,
			AttemptLog: []wire.Attempt{used, {Number: 6, At: at(4), Outcome: weir.OutcomeRejected}},
			FinishedAt: at(4),
			Replays:    1},
			begins + "failed, to be tried again | Replayed | Attempt 6: rejected | Dead"},
		"Edited": {wire.Message{Stage: weir.Queued, AttemptLog: []wire.Attempt{used}, Replays: 1,
			Edited: wire.Edit{At: at(3)}},
			begins + "failed, to be tried again | Edited, to be replayed | Waits, having been replayed"},
		"Forced": {wire.Message{Stage: weir.Queued, AttemptLog: []wire.Attempt{used}, Replays: 1,
			ReplayForced: true},
			begins + "failed, to be tried again | Replayed, by force | Waits, having been replayed"},
		"EditForced": {wire.Message{Stage: weir.Queued, AttemptLog: []wire.Attempt{used},
			Replays: 1, Edited: wire.Edit{At: at(3)},
			ReplayForced: true},
			begins + "failed, to be tried again | Edited, to be replayed, by force | Waits, having been replayed"},
		"ForcedAfterAnEdit": {wire.Message{Stage: weir.Queued, AttemptLog: []wire.Attempt{used},
			Replays: 2, Edited: wire.Edit{At: at(2)},
			ReplayForced: true},
			begins + "failed, to be tried again | Edited, to be replayed | Replayed, by force | Waits, having been replayed"},
	} {
		c.m.AcceptedAt, c.m.ReplayAskedAt = at(1), at(3)
		var told []string
		for _, e := range messageEvents(c.m, at(5)) {
			text := e.Title
			if e.Text != "" && e.Title == "Replay asked for" {
				text += ": " + e.Text
			}

			if e.Gap != "" {
				text += " (" + e.Gap + ")"
			}

			if len(e.Facts) > 0 && e.Facts[0].Name == "by force" {
				text += ", by force"
			}

			told = append(told, text)
		}

		if got := strings.Join(told, " | "); got != c.want {
			t.Errorf("%s: got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestChange_Parameters(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string][]Parameter{
		"": nil, "{}": nil, `[1]`: nil,
		`{"reason":"a \"b\"","all":true,"filter":{"lane":3},"rate":60}`: {{"all", "true"},
			{"filter", `{"lane":3}`}, {"rate", "60"}, {"reason", `a "b"`}},
	} {
		if got := (Change{Detail: detail}).Parameters(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", detail, got, want)
		}
	}
}
