package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/weir"
)

// Order is a sort order of messages, see ParseOrder. The zero Order keeps the present order of the
// messages.
type Order struct {
	field        string
	isDescending bool
}

// OrderFields are the fields that ParseOrder accepts.
var OrderFields = []string{"accepted", "finished", "due", "key", "version", "attempts", "status"}

// sortField is a field to sort by. Messages without a value come last in both directions.
type sortField struct {
	compare  func(a, b *weir.Status) int
	hasValue func(*weir.Status) bool // nil = every message has a value
}

var sortFields = map[string]sortField{
	"accepted": {compare: func(a, b *weir.Status) int { return a.Message.AcceptedAt.Compare(b.Message.AcceptedAt) }},
	"finished": {func(a, b *weir.Status) int { return a.FinishedAt.Compare(b.FinishedAt) },
		func(st *weir.Status) bool { return !st.FinishedAt.IsZero() }},
	"due": {func(a, b *weir.Status) int { return a.Message.DueAt.Compare(b.Message.DueAt) },
		func(st *weir.Status) bool { return !st.Message.DueAt.IsZero() }},
	"key": {compare: func(a, b *weir.Status) int { return cmp.Compare(a.Message.Key, b.Message.Key) }},
	"version": {func(a, b *weir.Status) int { return compareVersions(a.Message.Version, b.Message.Version) },
		func(st *weir.Status) bool { return st.Message.Version != "" }},
	"attempts": {compare: func(a, b *weir.Status) int { return cmp.Compare(a.AttemptCount, b.AttemptCount) }},
	"status": {func(a, b *weir.Status) int { return cmp.Compare(a.CMSStatus, b.CMSStatus) },
		func(st *weir.Status) bool { return st.CMSStatus != 0 }},
}

// ParseOrder parses an order: one of OrderFields, with a minus before it for descending order. An
// empty text is the zero Order.
func ParseOrder(text string) (Order, error) {
	field, isDescending := strings.CutPrefix(text, "-")
	if text != "" && !slices.Contains(OrderFields, field) {
		return Order{}, fmt.Errorf("must be one of %s, or one of these with a minus before it",
			strings.Join(OrderFields, ", "))
	}
	return Order{field, isDescending}, nil
}

// Sort sorts messages. Messages with equal values keep their relative order.
func (o Order) Sort(messages []weir.Status) {
	f, isGiven := sortFields[o.field]
	if !isGiven {
		return
	}

	slices.SortStableFunc(messages, func(a, b weir.Status) int {
		if f.hasValue != nil && (!f.hasValue(&a) || !f.hasValue(&b)) {
			return cmp.Compare(countAbsent(f, &a), countAbsent(f, &b))
		}
		if o.isDescending {
			return f.compare(&b, &a)
		}
		return f.compare(&a, &b)
	})
}

func countAbsent(f sortField, st *weir.Status) int {
	if f.hasValue(st) {
		return 0
	}
	return 1
}

// compareVersions sorts numbers before times, and times before other texts. Numbers and times are
// compared by their values, and other texts by their bytes.
func compareVersions(a, b string) int {
	x, y := rankVersion(a), rankVersion(b)
	if x.rank != y.rank || x.rank == textRank {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(a, b))
	}

	switch {
	case x.version.Newer(y.version):
		return 1
	case y.version.Newer(x.version):
		return -1
	}

	return 0
}

// The ranks of the kinds of versions, in ascending order.
const (
	numberRank = iota
	timeRank
	textRank
)

type rankedVersion struct {
	rank    int
	version weir.Version
}

func rankVersion(text string) rankedVersion {
	v, err := weir.ParseVersion(text)
	switch {
	case err != nil:
		return rankedVersion{rank: textRank}
	case v.IsTime():
		return rankedVersion{timeRank, v}
	}

	return rankedVersion{numberRank, v}
}
