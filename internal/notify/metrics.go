package notify

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the tries to send events, and the events that were never delivered. It is an
// Observer.
type Metrics struct{ tries *prometheus.CounterVec }

// NewMetrics registers its collectors with registry. The function waiting returns the number of
// waiting events. The counter of each pair of event and outcome starts at zero, so that an alert on
// a rate works before the first event.
func NewMetrics(registry prometheus.Registerer, waiting func() int) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_notifications_total",
		Help: "Tries to tell receivers of events, by what came of them: told, retry, gone, " +
			"given_up or dropped."}, []string{"event", "outcome"})}
	for _, event := range allEvents {
		for _, outcome := range Outcomes {
			m.tries.WithLabelValues(event, outcome)
		}
	}

	registry.MustRegister(m.tries,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_notifications_waiting",
			Help: "Events in the outboxes that this instance looks after, as of its last read of each."},
			func() float64 { return float64(waiting()) }))

	return m
}

// Notified implements Observer.
func (m *Metrics) Notified(event, outcome string) { m.tries.WithLabelValues(event, outcome).Inc() }
