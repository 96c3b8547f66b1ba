package view

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/history"
	"weir/internal/httpio"
	"weir/internal/query"
	"weir/internal/weir"
	"weir/internal/wire"
)

// StatsReader reads the counters of a span of time, in steps; see history.Keeper.Series.
type StatsReader interface {
	Series(ctx context.Context, span, step time.Duration, lane int) ([]history.Minute, error)
}

// History serves GET /api/history. All fields are needed.
type History struct {
	Source StatsReader
	Lanes  int
	Logger *slog.Logger
}

// HistoryStep is the JSON form of the counters of one step.
type HistoryStep struct {
	At           time.Time              `json:"at"`
	Accepted     int64                  `json:"accepted"`
	Delivered    int64                  `json:"delivered"`
	Dead         int64                  `json:"dead"`
	Cancelled    int64                  `json:"cancelled"`
	Superseded   int64                  `json:"superseded"`
	Discarded    int64                  `json:"discarded"`
	Waiting      int64                  `json:"waiting"`
	Oldest       float64                `json:"oldestSeconds"`
	Attempts     map[weir.Outcome]int64 `json:"attempts"`
	Attempt      quantiles              `json:"attemptSeconds"`
	Lag          quantiles              `json:"lagSeconds"`
	Transactions int64                  `json:"storageTransactions"`
	Throttled    int64                  `json:"storageThrottled"`
	Refused      int64                  `json:"refused"`         // refused submissions
	Poisoned     int64                  `json:"poisonedTickets"` // tickets that the host gave up
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func describeQuantiles(d history.Durations) quantiles {
	return quantiles{d.Quantile(0.5).Seconds(), d.Quantile(0.95).Seconds(),
		d.Quantile(0.99).Seconds()}
}

const (
	// defaultHistory and maxHistory are the default and the upper bound of the parameter "minutes".
	defaultHistory = 60
	maxHistory     = 8 * 24 * 60
	// maxSteps is about the number of steps that a plot can show.
	maxSteps = 240
)

// ServeHTTP implements http.Handler.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := query.New(r.URL.Query())
	minutes, lane := p.ReadNumber("minutes", defaultHistory, 1, maxHistory),
		p.ReadNumber("lane", -1, 0, h.Lanes-1)
	p.RefuseOthers("minutes", "lane")
	err := p.ToError()
	var steps []history.Minute
	step := ChooseStep(minutes)
	if err == nil {
		steps, err = h.Source.Series(r.Context(), time.Duration(minutes)*time.Minute, step, lane)
	}

	if err != nil {
		httpio.WriteError(w, r, h.Logger, err)
		return
	}

	sum := history.Sum(steps)
	out := struct {
		Step     float64        `json:"stepSeconds"`
		Minutes  []HistoryStep  `json:"minutes"`
		Refusals []wire.Refusal `json:"refusals"`
		Senders  []wire.Sender  `json:"senders"`
	}{step.Seconds(), []HistoryStep{}, history.DescribeRefusals(&sum),
		history.DescribeSenders(&sum)}

	for i := range steps {
		out.Minutes = append(out.Minutes, describeStep(&steps[i]))
	}

	httpio.WriteJSON(w, http.StatusOK, out)
}

// ChooseStep returns the length of the steps for a span of minutes. The length is 1, 5, 15, 30 or
// 60 minutes: the shortest one that divides the span into at most maxSteps whole steps. If none of
// them does, the length is 60 minutes.
func ChooseStep(minutes int) time.Duration {
	for _, step := range []int{1, 5, 15, 30, 60} {
		if minutes/step <= maxSteps {
			return time.Duration(step) * time.Minute
		}
	}
	return time.Hour
}

func describeStep(m *history.Minute) HistoryStep {
	t, attempts := m.Total(), m.Attempts
	if attempts == nil {
		attempts = map[weir.Outcome]int64{}
	}

	return HistoryStep{
		At: m.At, Accepted: t.Accepted, Delivered: t.Delivered, Dead: t.Dead,
		Cancelled:  t.Cancelled,
		Superseded: t.Superseded, Discarded: t.Discarded,
		Waiting: t.Waiting, Oldest: t.Oldest.Seconds(), Attempts: attempts,
		Attempt:      describeQuantiles(m.Attempt),
		Lag:          describeQuantiles(m.Lag),
		Transactions: m.AllTransactions(), Throttled: m.Throttled, Refused: m.AllRefused(),
		Poisoned: m.Poisoned,
	}
}
