package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"time"

	"weir/internal/storage"
)

// The layout of a row: checksum (4 bytes), number of the ETag (8 bytes), then for each value the
// length and bytes of its name, its type, and its bytes. The checksum covers the partition, the
// key and all bytes after it.
const rowHeader = 12

// The types of values.
const (
	typeString byte = iota + 1
	typeInt
	typeTrue
	typeFalse
	typeFloat
	typeBytes
	typeTime
)

// timeName is the name under which a row keeps the time of its last write (storage.Op.KeepsTime).
// No caller can write a value of this name.
const timeName = "Timestamp"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of parts, each with its length.
func sumOf(parts ...[]byte) uint32 {
	var sum uint32
	for _, part := range parts {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		sum = crc32.Update(crc32.Update(sum, castagnoli, length[:]), castagnoli, part)
	}

	return sum
}

// encodeValues returns an encoded row, without ETag and checksum.
func encodeValues(values map[string]any) []byte {
	out := make([]byte, rowHeader, rowHeader+encodedSize(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] != nil {
			out = appendText(out, name)
			out = appendValue(out, values[name])
		}
	}

	return out
}

func encodedSize(values map[string]any) (n int) {
	for name, value := range values {
		n += len(name) + 2*binary.MaxVarintLen32 + 1 + binary.MaxVarintLen64
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
	}

	return n
}

func appendText(out []byte, s string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(s))), s...)
}

// appendValue appends a value of a type that limits.CheckTransaction accepts. Times have a
// precision of 100 ns, as the port says.
func appendValue(out []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendText(append(out, typeString), v)
	case int64:
		return binary.AppendVarint(append(out, typeInt), v)
	case bool:
		if v {
			return append(out, typeTrue)
		}
		return append(out, typeFalse)

	case float64:
		return binary.BigEndian.AppendUint64(append(out, typeFloat), math.Float64bits(v))
	case []byte:
		return append(binary.AppendUvarint(append(out, typeBytes), uint64(len(v))), v...)
	case time.Time:
		out = binary.AppendVarint(append(out, typeTime), v.Unix())
		return binary.AppendUvarint(out, uint64(v.Nanosecond()/100))
	}

	panic(fmt.Sprintf("embedded: a value of type %T passed the check", value))
}

// sealRow sets the number of the ETag and the checksum of an encoded row.
func sealRow(value []byte, partition, key string, number uint64) {
	binary.BigEndian.PutUint64(value[4:], number)
	binary.BigEndian.PutUint32(value, sumOf([]byte(partition), []byte(key), value[4:]))
}

// wantedColumns returns whether a column is wanted, or nil if all are.
func wantedColumns(columns []string) func(name []byte) bool {
	if columns == nil {
		return nil
	}

	return func(name []byte) bool {
		return slices.ContainsFunc(columns, func(c string) bool { return c == string(name) })
	}
}

// decodeRow returns a row with copies of its bytes.
func decodeRow(partition, key string, value []byte,
	isWanted func([]byte) bool) (storage.Row, error) {
	row := storage.Row{Partition: partition, Key: key, ETag: rowETag(value),
		Values: map[string]any{}}
	if len(value) < rowHeader ||
		binary.BigEndian.Uint32(value) != sumOf([]byte(partition), []byte(key), value[4:]) {
		return row, fmt.Errorf("row %s of %s: %w", key, partition, errDamaged)
	}

	d := decoder{rest: value[rowHeader:]}
	for len(d.rest) > 0 && !d.isDamaged {
		name := d.takeText()
		v := d.takeValue()
		if at, isTime := v.(time.Time); isTime && string(name) == timeName {
			row.WrittenAt = at
			continue
		}

		if isWanted == nil || isWanted(name) {
			row.Values[string(name)] = copyValue(v)
		}
	}

	if d.isDamaged {
		return row, fmt.Errorf("row %s of %s: %w", key, partition, errDamaged)
	}

	return row, nil
}

// decoder takes values from the front of bytes. If they are not as appendValue writes them, it sets
// isDamaged.
type decoder struct {
	rest      []byte
	isDamaged bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.isDamaged, d.rest = true, nil
		return nil
	}

	taken := d.rest[:n:n]
	d.rest = d.rest[n:]

	return taken
}

func (d *decoder) takeUvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.take(uint64(max(n, 0)))
	d.isDamaged = d.isDamaged || n <= 0

	return v
}

func (d *decoder) takeVarint() int64 {
	v, n := binary.Varint(d.rest)
	d.take(uint64(max(n, 0)))
	d.isDamaged = d.isDamaged || n <= 0

	return v
}

func (d *decoder) takeText() []byte { return d.take(d.takeUvarint()) }

// text is a string that is not copied yet.
type text []byte

func (d *decoder) takeValue() any {
	kind := d.take(1)
	if d.isDamaged {
		return nil
	}

	switch kind[0] {
	case typeString:
		return text(d.takeText())
	case typeInt:
		return d.takeVarint()
	case typeTrue, typeFalse:
		return kind[0] == typeTrue
	case typeFloat:
		if bits := d.take(8); !d.isDamaged {
			return math.Float64frombits(binary.BigEndian.Uint64(bits))
		}

	case typeBytes:
		return d.takeText()
	case typeTime:
		seconds := d.takeVarint()
		return time.Unix(seconds, int64(d.takeUvarint())*100).UTC()
	default:
		d.isDamaged = true
	}

	return nil
}

// copyValue copies a value that refers to bytes of the file.
func copyValue(value any) any {
	switch v := value.(type) {
	case text:
		return string(v)
	case []byte:
		return append([]byte{}, v...)
	}

	return value
}

func copyValues(values map[string]any) map[string]any {
	out := make(map[string]any, len(values))
	for name, value := range values {
		if b, isBytes := value.([]byte); isBytes {
			value = bytes.Clone(b)
		}
		if value != nil {
			out[name] = value
		}
	}

	return out
}
