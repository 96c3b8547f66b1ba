package history

import (
	"cmp"
	"slices"
	"strings"

	"weir/internal/wire"
)

// DescribeRefusals returns the numbers of refused submissions, by reason, the most frequent reason
// first.
func DescribeRefusals(m *Minute) []wire.Refusal {
	all := []wire.Refusal{}
	for r, n := range m.Refused {
		all = append(all, wire.Refusal{Way: r.Way, Reason: r.Reason, Contract: r.Contract,
			Rule: r.Rule, Count: n})
	}

	slices.SortFunc(all, func(a, b wire.Refusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Way, b.Way),
			strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Contract, b.Contract), strings.Compare(a.Rule, b.Rule))
	})

	return all
}

// DescribeSenders returns the numbers of accepted posts, by sender, the sender of most posts first.
func DescribeSenders(m *Minute) []wire.Sender {
	all := []wire.Sender{}
	for sender, n := range m.Senders {
		all = append(all, wire.Sender{Sender: sender, Accepted: n})
	}

	slices.SortFunc(all, func(a, b wire.Sender) int {
		return cmp.Or(cmp.Compare(b.Accepted, a.Accepted), strings.Compare(a.Sender, b.Sender))
	})
	return all
}
