package dashboard

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

// span is a period that the page can show.
type span struct {
	Name         string
	Current      bool
	length, step time.Duration
}

var spans = []span{
	{Name: "1h", length: time.Hour, step: time.Minute},
	{Name: "6h", length: 6 * time.Hour, step: 5 * time.Minute},
	{Name: "24h", length: 24 * time.Hour, step: 15 * time.Minute},
	{Name: "7d", length: 7 * 24 * time.Hour, step: time.Hour},
}

func chosenSpan(r *http.Request) (span, []span) {
	all := append([]span(nil), spans...)
	chosen := 0
	for i := range all {
		if all[i].Name == r.URL.Query().Get("span") {
			chosen = i
		}
	}

	all[chosen].Current = true

	return all[chosen], all
}

// maxClusters is the largest number of errors on the overview page.
const maxClusters = 8

type overviewView struct {
	*page
	Span      string
	Spans     []span
	Report    wire.LaneList
	Totals    wire.Counts
	Balanced  bool
	Oldest    time.Time
	Rate1     float64   // sum over the lanes whose rate is known
	Rate15    float64   // sum over the lanes whose rate is known
	RateFrom  time.Time // start of the minute of Rate1; zero = not known
	RateUntil time.Time // end of the minute of Rate1; zero = not known
	// number of messages that finished after RateUntil; see addSince
	Since     int64
	Paused    []wire.Lane            // lanes that are paused as a whole
	ByPeople  []wire.Lane            // the lanes of Paused that an operator paused
	KeyPauses int                    // number of paused keys
	Missing   []wire.MissingContract // contracts that the settings lack, over all lanes
	Brakes    []wire.Brake           // rejections for which messages wait, over all lanes
	Charts    []chart
	CMS       health
	Intake    intake
	Meter     meter
	Clusters  wire.ErrorList
	More      int // number of errors that are not shown
	Jobs      []wire.Job
	Schedules []Schedule
}

// health is the state of the CMS, derived from the attempts of the shown span.
type health struct {
	Attempts                      int64
	Failed, Rejected, Unavailable int64
	Share                         float64 // share of attempts that did not deliver
	P50, P95, P99                 time.Duration
	LagP50, LagP95                time.Duration
	// earliest end of the lanes' pauses for the CMS; zero = there is none
	PausedUntil time.Time
	// reason of the pause until PausedUntil; "" = no lane is paused for the CMS
	Reason string
	// time of the last attempt if that attempt failed; otherwise zero
	FailedAt                  time.Time
	FailedReason              string
	RefusedKeys               int64     // keys that the CMS refuses, if they are few
	RefusedKey, RefusedReason string    // one of these keys, and the words of the CMS
	RefusedUntil              time.Time // when they are tried again; zero = now
	Tone                      badge
}

func (d *Dashboard) overviewPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	chosen, all := chosenSpan(r)
	v := &overviewView{page: p, Span: chosen.Name, Spans: all}
	p.Title, p.Refresh = "Overview", true
	var past History
	reading := d.newLoader(ctx, p)
	reading.loadLanes(&v.Report)
	reading.loadHistory(chosen, &past)
	reading.loadErrors(longAge, &v.Clusters)
	reading.loadReplays(&v.Jobs)
	reading.loadSchedules(&v.Schedules)
	reading.waitAll()
	v.addTotals()
	v.CMS = newHealth(past.Sum, v.Report.Lanes)
	v.Intake = newIntake(past, p.Now)
	v.Meter = newMeter(past.Sum)
	waiting := v.Totals.Waiting
	if p.Missed("the lanes") {
		waiting = -1
	}

	v.Charts = drawCharts(past, chosen.step, p.Now, waiting)
	v.addSince(past.Steps, chosen.step)
	v.Jobs = runningJobs(v.Jobs)
	if n := len(v.Clusters.Errors); n > maxClusters {
		v.Clusters.Errors, v.More = v.Clusters.Errors[:maxClusters], n-maxClusters
	}

	return v, nil
}

func (v *overviewView) addTotals() {
	v.Totals = v.Report.Totals
	v.Balanced = v.Totals.IsBalanced()
	for _, l := range v.Report.Lanes {
		v.Rate1 += valueOrZero(l.Rate1)
		v.Rate15 += valueOrZero(l.Rate15)
		if !l.OldestAt.IsZero() && (v.Oldest.IsZero() || l.OldestAt.Before(v.Oldest)) {
			v.Oldest = l.OldestAt
		}

		if v.RateUntil = l.RatesUntil; !v.RateUntil.IsZero() {
			v.RateFrom = v.RateUntil.Add(-time.Minute)
		}

		if l.PausedBy != "" {
			v.Paused = append(v.Paused, l)
		}

		if l.PausedBy == "operator" {
			v.ByPeople = append(v.ByPeople, l)
		}

		for _, m := range l.MissingContracts {
			v.addMissing(m)
		}

		for _, b := range l.Brakes {
			v.addBrake(b)
		}

		for _, pause := range l.Pauses {
			if pause.Key != "" {
				v.KeyPauses++
			}
		}
	}
}

// addMissing adds a missing contract of a lane to that contract of other lanes.
func (v *overviewView) addMissing(m wire.MissingContract) {
	for i := range v.Missing {
		if sum := &v.Missing[i]; sum.Contract == m.Contract {
			sum.Messages += m.Messages
			sum.Keys += m.Keys
			if m.Since.Before(sum.Since) {
				sum.Since = m.Since
			}
			return
		}
	}

	v.Missing = append(v.Missing, m)
}

// addBrake adds a brake of a lane to the same brake of other lanes.
func (v *overviewView) addBrake(b wire.Brake) {
	for i := range v.Brakes {
		if sum := &v.Brakes[i]; sum.Fingerprint == b.Fingerprint {
			sum.Messages += b.Messages
			sum.Keys += b.Keys
			if b.Since.Before(sum.Since) {
				sum.Since = b.Since
			}
			return
		}
	}

	v.Brakes = append(v.Brakes, b)
}

// addSince counts the messages that became delivered, dead or superseded after RateUntil. It needs
// steps of one minute, because a longer step does not show in which minute a message finished.
func (v *overviewView) addSince(steps []Step, step time.Duration) {
	for _, s := range steps {
		if step == time.Minute && !v.RateUntil.IsZero() && !s.At.Before(v.RateUntil) {
			v.Since += s.Delivered + s.Dead + s.Superseded
		}
	}
}

// PausedBy returns a text with the causes for which lanes are paused. If there are several causes,
// the text has the number of lanes for each cause.
func (v *overviewView) PausedBy() string {
	var texts []string
	for _, cause := range []struct{ by, text string }{{"operator", "by an operator"},
		{"calendar", "by the calendar"}, {"cms", "for the CMS"}} {
		n := 0
		for _, l := range v.Paused {
			if l.PausedBy == cause.by {
				n++
			}
		}

		switch {
		case n == len(v.Paused) && n > 0:
			return cause.text
		case n > 0:
			texts = append(texts, formatCount(n)+" "+cause.text)
		}
	}

	return strings.Join(texts, ", ")
}

func valueOrZero(n *float64) float64 {
	if n == nil {
		return 0
	}
	return *n
}

func runningJobs(jobs []wire.Job) []wire.Job {
	var out []wire.Job
	for _, j := range jobs {
		if j.IsRunning() {
			out = append(out, j)
		}
	}
	return out
}

// intake has the submissions of the shown span.
type intake struct {
	Refused, Throttled int64
	RecentlyThrottled  int64
	Poisoned           int64          // tickets that the host gave up recently
	Refusals           []wire.Refusal // the most frequent reasons
	MoreRefused        int64          // refused submissions that Refusals does not count
	Senders            []wire.Sender
	MostlyRefused      bool // recently more submissions were refused than accepted
}

const (
	// The overview shows at most maxRefusals reasons and maxSenders senders.
	maxRefusals, maxSenders = 8, 5
	// "Recently" is within the last recentWindow. If at least manyRefused submissions were refused
	// recently, and fewer were accepted, a contract or an upstream is probably wrong.
	recentWindow, manyRefused = 15 * time.Minute, 5
)

// newIntake returns the submissions of a history.
func newIntake(past History, now time.Time) intake {
	in := intake{Refused: past.Sum.Refused, Throttled: past.Sum.Throttled,
		Refusals: past.Refusals[:min(len(past.Refusals), maxRefusals)],
		Senders:  past.Senders[:min(len(past.Senders), maxSenders)]}
	in.MoreRefused = in.Refused
	for _, r := range in.Refusals {
		in.MoreRefused -= r.Count
	}

	var accepted, refused int64
	for _, s := range past.Steps {
		if s.At.After(now.Add(-recentWindow)) {
			accepted, refused, in.Poisoned = accepted+s.Accepted, refused+s.Refused,
				in.Poisoned+s.Poisoned
			in.RecentlyThrottled += s.Throttled
		}
	}

	in.MostlyRefused = refused >= manyRefused && refused > accepted

	return in
}

// newHealth returns the state of the CMS. After a failed attempt, the state stays bad until an
// attempt is delivered or rejected. Until then, the CMS could still be down.
func newHealth(s Step, lanes []wire.Lane) health {
	h := health{P50: s.AttemptP50, P95: s.AttemptP95, P99: s.AttemptP99, LagP50: s.LagP50,
		LagP95: s.LagP95,
		Failed: s.Attempts[weir.OutcomeRetry], Rejected: s.Attempts[weir.OutcomeRejected],
		Unavailable: s.Attempts[weir.OutcomeUnavailable]}

	h.Attempts = s.Attempts[weir.OutcomeDelivered] + h.Failed + h.Rejected + h.Unavailable
	if h.Attempts > 0 {
		h.Share = float64(h.Attempts-s.Attempts[weir.OutcomeDelivered]) / float64(h.Attempts)
	}

	for _, l := range lanes {
		if l.HasFewRefused {
			h.noteRefusedKeys(l)
			continue
		}

		if l.PausedBy == "cms" && (h.Reason == "" || l.PausedUntil.Before(h.PausedUntil)) {
			h.PausedUntil, h.Reason = l.PausedUntil,
				cmp.Or(l.PauseReason, l.LastError, "it did not answer")
		}
	}

	h.noteLastFailure(s, lanes)

	switch {
	case h.Reason != "":
		h.Tone = badge{"unavailable", "pause", "bad"}
	case h.RefusedKeys > 0:
		h.Tone = badge{"refuses " + formatPlural(int(h.RefusedKeys), "key", "keys"), "warn", "warn"}
	case !h.FailedAt.IsZero():
		h.Tone = badge{"failed when last asked", "warn", "bad"}
	case h.Attempts == 0:
		h.Tone = badge{"no requests", "dots", "plain"}
	case h.Share >= 0.1:
		h.Tone = badge{"many errors", "warn", "warn"}
	default:
		h.Tone = badge{"OK", "check", "good"}
	}

	return h
}

// noteRefusedKeys adds the few keys of a lane that the CMS refuses.
func (h *health) noteRefusedKeys(l wire.Lane) {
	h.RefusedKeys += l.RefusedKeys
	if h.RefusedReason == "" {
		h.RefusedKey, h.RefusedReason = l.RefusedKey, cmp.Or(l.PauseReason, l.LastError)
	}

	if l.PausedBy == "cms" && (h.RefusedUntil.IsZero() || l.PausedUntil.Before(h.RefusedUntil)) {
		h.RefusedUntil = l.PausedUntil
	}
}

// noteLastFailure sets FailedAt and FailedReason if the last known attempt failed. It looks into
// the history and also at the lanes, because the history shows the attempts of other instances up
// to two minutes late. The field FoundDown of a lane shows a failure at once.
func (h *health) noteLastFailure(s Step, lanes []wire.Lane) {
	if h.RefusedKeys > 0 {
		return // the last failure is the refusal of a key
	}

	failedAt := s.FailedAt
	for _, l := range lanes {
		if l.FoundDown && l.LastErrorAt.After(failedAt) {
			failedAt = l.LastErrorAt
		}
	}

	if !failedAt.After(s.AnsweredAt) {
		return
	}

	h.FailedAt = failedAt
	for _, l := range lanes {
		if l.LastErrorAt.Sub(failedAt).Abs() < time.Second {
			h.FailedReason = l.LastError
		}
	}
}

// drawCharts returns the charts of a history. The legend of the backlog shows the argument
// "waiting" or, if this argument is negative, the last number in the history. The other legends
// show the last step whose counters are complete.
func drawCharts(past History, step time.Duration, now time.Time, waiting int64) []chart {
	if len(past.Steps) == 0 {
		return nil
	}

	p := plotter{steps: slices.Clone(past.Steps), step: step, now: now}
	if last := &p.steps[len(p.steps)-1]; waiting >= 0 {
		last.Waiting = waiting
	}

	for i, s := range p.steps {
		p.times = append(p.times, s.At)
		if !s.At.Add(step).After(past.CompleteUntil) {
			p.whole = i
		}
	}

	flow := []series{
		p.plotRate("accepted", func(s Step) int64 { return s.Accepted }),
		p.plotRate("delivered", func(s Step) int64 { return s.Delivered }),
		p.plotRate("dead", func(s Step) int64 { return s.Dead }),
	}

	attempts := []series{
		p.plotTime("p50", func(s Step) time.Duration { return s.AttemptP50 }),
		p.plotTime("p95", func(s Step) time.Duration { return s.AttemptP95 }),
		p.plotTime("p99", func(s Step) time.Duration { return s.AttemptP99 }),
	}

	lag := []series{
		p.plotTime("p50", func(s Step) time.Duration { return s.LagP50 }),
		p.plotTime("p95", func(s Step) time.Duration { return s.LagP95 }),
	}

	depth := []series{p.plot("waiting", len(p.steps)-1, formatWhole,
		func(s Step) float64 { return float64(s.Waiting) })}
	backlog := drawChart("depth", "Backlog", "messages that wait",
		linearAxis(formatWhole, depth...), p.times, depth)

	return []chart{
		p.nameTime(drawChart("flow", "Throughput", "messages per minute",
			linearAxis(formatRate, flow...), p.times, flow)),
		backlog,
		p.nameTime(drawChart("attempts", "CMS", "time of an attempt", logAxis(attempts...), p.times,
			attempts)),
		p.nameTime(drawChart("lag", "Lag", "until delivery", logAxis(lag...), p.times, lag)),
	}
}

// plotter makes the series of charts from steps.
type plotter struct {
	steps []Step
	times []time.Time
	whole int // index of the last step whose counters all instances have stored; 0 if there is none
	step  time.Duration
	now   time.Time
}

// plot returns a series with one value for each step. The argument "legend" is the index of the
// step whose value the legend shows.
func (p *plotter) plot(name string, legend int, text func(float64) string,
	value func(Step) float64) series {
	s := series{Name: name, Class: "s-" + name, Now: "–"}
	for _, step := range p.steps {
		s.values = append(s.values, value(step))
	}

	if v := s.values[legend]; !math.IsNaN(v) {
		s.Now = text(v)
	}

	return s
}

// plotRate returns a series of numbers per minute. For a step that is not over, plotRate divides
// the number by the minutes since the start of the step, or by 1 if the step began less than a
// minute ago.
func (p *plotter) plotRate(name string, count func(Step) int64) series {
	return p.plot(name, p.whole, formatRate, func(s Step) float64 {
		length := max(min(p.step, p.now.Sub(s.At)), time.Minute)
		return float64(count(s)) / length.Minutes()
	})
}

// plotTime returns a series of durations in milliseconds.
func (p *plotter) plotTime(name string, value func(Step) time.Duration) series {
	return p.plot(name, p.whole, formatMilliseconds,
		func(s Step) float64 { return knownMilliseconds(value(s)) })
}

// nameTime sets the start and the end of the step whose values the legend shows.
func (p *plotter) nameTime(c chart) chart {
	c.NowFrom = p.times[p.whole]
	c.NowUntil = c.NowFrom.Add(p.step)
	return c
}

// knownMilliseconds returns a duration in milliseconds. A duration of 0 means that the value is not
// known. For 0, knownMilliseconds returns NaN, which the chart shows as a gap in the line.
func knownMilliseconds(d time.Duration) float64 {
	if d <= 0 {
		return math.NaN()
	}
	return float64(d) / 1e6
}
