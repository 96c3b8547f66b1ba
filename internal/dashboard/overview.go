package dashboard

import (
	"cmp"
	"context"
	"math"
	"net/http"
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

// maxClusters limits the errors on the first page.
const maxClusters = 8

type overviewView struct {
	*page
	Span      string
	Spans     []span
	Report    wire.LaneList
	Totals    wire.Counts
	Balanced  bool
	Oldest    time.Time
	Rate1     float64
	Rate15    float64
	Paused    []wire.Lane // paused as a whole
	KeyPauses int
	Charts    []chart
	CMS       health
	Meter     meter
	Clusters  wire.ErrorList
	More      int // errors that are not shown
	Jobs      []wire.Job
	Schedules []Schedule
}

// health is the state of the CMS, by the attempts of the span.
type health struct {
	Attempts                      int64
	Failed, Rejected, Unavailable int64
	Share                         float64 // of attempts that were not delivered
	P50, P95, P99                 time.Duration
	LagP50, LagP95                time.Duration
	PausedUntil                   time.Time // of the first lane that waits for the CMS
	Reason                        string
	Tone                          badge
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
	v.Meter = newMeter(past.Sum)
	v.Charts = drawCharts(past.Steps, chosen.step, p.Now)
	v.Jobs = runningJobs(v.Jobs)
	if n := len(v.Clusters.Errors); n > maxClusters {
		v.Clusters.Errors, v.More = v.Clusters.Errors[:maxClusters], n-maxClusters
	}
	return v, nil
}

// addTotals adds up the lanes.
func (v *overviewView) addTotals() {
	v.Totals = v.Report.Totals
	v.Balanced = v.Totals.IsBalanced()
	for _, l := range v.Report.Lanes {
		v.Rate1 += valueOrZero(l.Rate1)
		v.Rate15 += valueOrZero(l.Rate15)
		if !l.OldestAt.IsZero() && (v.Oldest.IsZero() || l.OldestAt.Before(v.Oldest)) {
			v.Oldest = l.OldestAt
		}
		if l.PausedBy != "" {
			v.Paused = append(v.Paused, l)
		}
		for _, pause := range l.Pauses {
			if pause.Key != "" {
				v.KeyPauses++
			}
		}
	}
}

// valueOrZero returns a number of the API, or 0 if it is not known.
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

func newHealth(s Step, lanes []wire.Lane) health {
	h := health{P50: s.AttemptP50, P95: s.AttemptP95, P99: s.AttemptP99, LagP50: s.LagP50, LagP95: s.LagP95,
		Failed: s.Attempts[weir.OutcomeRetry], Rejected: s.Attempts[weir.OutcomeRejected],
		Unavailable: s.Attempts[weir.OutcomeUnavailable]}
	h.Attempts = s.Attempts[weir.OutcomeDelivered] + h.Failed + h.Rejected + h.Unavailable
	if h.Attempts > 0 {
		h.Share = float64(h.Attempts-s.Attempts[weir.OutcomeDelivered]) / float64(h.Attempts)
	}
	for _, l := range lanes {
		if l.PausedBy == "cms" && (h.Reason == "" || l.PausedUntil.Before(h.PausedUntil)) {
			h.PausedUntil, h.Reason = l.PausedUntil, cmp.Or(l.PauseReason, l.LastError, "it did not answer")
		}
	}
	switch {
	case h.Reason != "":
		h.Tone = badge{"unavailable", "pause", "bad"}
	case h.Attempts == 0:
		h.Tone = badge{"not asked", "dots", "plain"}
	case h.Share >= 0.1:
		h.Tone = badge{"many errors", "warn", "warn"}
	default:
		h.Tone = badge{"well", "check", "good"}
	}
	return h
}

// drawCharts draws the steps. The last step is not over yet, so its rates use the time since its beginning. It
// is left out while that is too short for a meaningful rate.
func drawCharts(steps []Step, step time.Duration, now time.Time) []chart {
	if n := len(steps) - 1; n > 0 && now.Sub(steps[n].At) < step/4 {
		steps = steps[:n]
	}
	if len(steps) == 0 {
		return nil
	}
	times := make([]time.Time, len(steps))
	for i, s := range steps {
		times[i] = s.At
	}
	perMinute := func(s Step, n int64) float64 {
		length := max(min(step, now.Sub(s.At)), time.Second)
		return float64(n) / length.Minutes()
	}
	of := func(name, class string, text func(float64) string, value func(Step) float64) series {
		s := series{Name: name, Class: class}
		for _, step := range steps {
			s.values = append(s.values, value(step))
		}
		last := s.values[len(s.values)-1]
		if s.Now = "–"; !math.IsNaN(last) {
			s.Now = text(last)
		}
		return s
	}
	flow := []series{
		of("accepted", "s-accepted", formatRate, func(s Step) float64 { return perMinute(s, s.Accepted) }),
		of("delivered", "s-delivered", formatRate, func(s Step) float64 { return perMinute(s, s.Delivered) }),
		of("dead", "s-dead", formatRate, func(s Step) float64 { return perMinute(s, s.Dead) }),
	}
	times3 := []series{
		of("p50", "s-p50", formatMilliseconds, func(s Step) float64 { return knownMilliseconds(s.AttemptP50) }),
		of("p95", "s-p95", formatMilliseconds, func(s Step) float64 { return knownMilliseconds(s.AttemptP95) }),
		of("p99", "s-p99", formatMilliseconds, func(s Step) float64 { return knownMilliseconds(s.AttemptP99) }),
	}
	lag := []series{
		of("p50", "s-p50", formatMilliseconds, func(s Step) float64 { return knownMilliseconds(s.LagP50) }),
		of("p95", "s-p95", formatMilliseconds, func(s Step) float64 { return knownMilliseconds(s.LagP95) }),
	}
	depth := []series{of("waiting", "s-waiting", formatRate, func(s Step) float64 { return float64(s.Waiting) })}
	return []chart{
		drawChart("flow", "Throughput", "messages a minute", linearAxis(formatRate, flow...), times, flow),
		drawChart("depth", "Backlog", "messages that wait", linearAxis(formatRate, depth...), times, depth),
		drawChart("attempts", "CMS", "time of an attempt", logAxis(times3...), times, times3),
		drawChart("lag", "Lag", "until delivery", logAxis(lag...), times, lag),
	}
}

// knownMilliseconds returns a duration in milliseconds, or a gap if it is not known.
func knownMilliseconds(d time.Duration) float64 {
	if d <= 0 {
		return math.NaN()
	}
	return float64(d) / 1e6
}
