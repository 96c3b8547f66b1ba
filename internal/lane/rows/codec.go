package rows

import (
	"maps"
	"time"
)

// A column has a name and a type. Its method Of reads the column from the values of a row; if the
// row has no value in the column, Of returns the zero value. Its method Is returns a Cell for a row
// to be written.
type (
	// Int is the column of an int64.
	Int string
	// Text is the column of a string.
	Text string
	// Bool is the column of a bool.
	Bool string
	// Bytes is the column of bytes.
	Bytes string
	// Time is the column of a time.
	Time string

	// ErasableTime is the column of a time that a merge can erase. A merge cannot remove a value.
	// So to erase the time, the merge writes the Unix epoch.
	ErasableTime string

	// Packed is the column of a text. Its value is a string, or compressed bytes if the text is
	// long.
	Packed string
)

// Column is a column of any type.
type Column interface{ Name() string }

// Cell is a value of one column.
type Cell struct {
	column string
	value  any
}

// Name returns the stored name of the column.
func (c Int) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c Text) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c Bool) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c Bytes) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c Time) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c ErasableTime) Name() string { return string(c) }

// Name returns the stored name of the column.
func (c Packed) Name() string { return string(c) }

// Of returns the column's value in a row.
func (c Int) Of(v map[string]any) int64 { n, _ := v[string(c)].(int64); return n }

// Of returns the column's value in a row.
func (c Text) Of(v map[string]any) string { s, _ := v[string(c)].(string); return s }

// Of returns the column's value in a row.
func (c Bool) Of(v map[string]any) bool { b, _ := v[string(c)].(bool); return b }

// Of returns the column's value in a row.
func (c Bytes) Of(v map[string]any) []byte { b, _ := v[string(c)].([]byte); return b }

// Of returns the column's value in a row, in UTC.
func (c Time) Of(v map[string]any) time.Time { return timeOf(v[string(c)]) }

// Of returns the column's value in a row, in UTC. The Unix epoch reads as zero.
func (c ErasableTime) Of(v map[string]any) time.Time {
	t := timeOf(v[string(c)])
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}

// Of returns the column's value in a row: a string, bytes, or nil.
func (c Packed) Of(v map[string]any) any { return v[string(c)] }

func timeOf(value any) time.Time {
	t, _ := value.(time.Time)
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// Is returns a cell with the value n.
func (c Int) Is(n int64) Cell { return Cell{string(c), n} }

// Is returns a cell with the value s.
func (c Text) Is(s string) Cell { return Cell{string(c), s} }

// Is returns a cell with the value b.
func (c Bool) Is(b bool) Cell { return Cell{string(c), b} }

// Is returns a cell with the value b.
func (c Bytes) Is(b []byte) Cell { return Cell{string(c), b} }

// Is returns a cell with the value t, in UTC. Storage cannot store the zero time. So a cell with
// the zero time is allowed only as an argument of Sparse, which leaves the cell out.
func (c Time) Is(t time.Time) Cell { return Cell{string(c), t.UTC()} }

// Is returns a cell with the value t, in UTC. If t is zero, the cell has the Unix epoch.
func (c ErasableTime) Is(t time.Time) Cell {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return Cell{string(c), t.UTC()}
}

// Is returns a cell with a value that is a string or bytes.
func (c Packed) Is(value any) Cell { return Cell{string(c), value} }

// Values returns the values of a row that consists of cells.
func Values(cells ...Cell) map[string]any {
	v := make(map[string]any, len(cells))
	Put(v, cells...)
	return v
}

// Put sets cells in the values of a row.
func Put(v map[string]any, cells ...Cell) {
	for _, c := range cells {
		v[c.column] = c.value
	}
}

// Sparse returns the values of a row that consists of cells, without empty texts, zero numbers,
// false and zero times. This saves time and room in storage. A column's method Of returns the zero
// value for an absent value. Use Sparse only for a row that is written whole: in a merge, a column
// that Sparse left out would keep its old value.
func Sparse(cells ...Cell) map[string]any {
	v := Values(cells...)
	maps.DeleteFunc(v, func(_ string, value any) bool {
		t, isTime := value.(time.Time)
		return value == "" || value == int64(0) || value == false || isTime && t.IsZero()
	})
	return v
}

// Has reports whether a row has a value in the column.
func Has(v map[string]any, c Column) bool {
	_, ok := v[c.Name()]
	return ok
}

// Remove removes columns from the values of a row.
func Remove(v map[string]any, columns ...Column) {
	for _, c := range columns {
		delete(v, c.Name())
	}
}

// Names returns the names of columns, for storage.Query.
func Names(columns ...Column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name()
	}
	return names
}

// MaxGroupBytes is the largest estimated size of the rows that are written with one transaction. It
// is below storage.MaxPayloadBytes, because EstimateSize is not exact.
const MaxGroupBytes = 3 << 20

// EstimateSize returns the approximate number of bytes that a row takes in a transaction.
func EstimateSize(v map[string]any) int {
	n := 1024
	for _, value := range v {
		switch value := value.(type) {
		case []byte:
			n += len(value) * 4 / 3
		case string:
			n += 2 * len(value)
		}
	}

	return n
}
