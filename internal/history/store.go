package history

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"io"
	"time"

	"weir/internal/storage"
	"weir/internal/upkeep"
)

const (
	partition = "history"
	hourKey   = "2006010215"
	// retention is the age at which a row is removed.
	retention = 8 * 24 * time.Hour
	// maxPackedSize is the largest size of a column in bytes, according to Azure's documentation of
	// the table service.
	maxPackedSize = 64 << 10
)

func rowKey(hour time.Time, instance string) string { return hour.Format(hourKey) + "_" + instance }

// packMinutes encodes the minutes of an hour. If the result is larger than maxPackedSize,
// packMinutes encodes the sum of all lanes instead of each lane.
func packMinutes(minutes []*Minute) ([]byte, error) {
	data, err := compressMinutes(minutes)
	if err != nil || len(data) <= maxPackedSize {
		return data, err
	}

	merged := make([]*Minute, len(minutes))
	for i, m := range minutes {
		c, total := m.copyMinute(), m.Total()
		c.Lanes = map[int]*Lane{allLanes: &total}
		merged[i] = c
	}

	return compressMinutes(merged)
}

// allLanes is the lane number of the sum that packMinutes encodes.
const allLanes = -1

func compressMinutes(minutes []*Minute) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}

	if err := json.NewEncoder(w).Encode(minutes); err != nil {
		return nil, err
	}

	err = w.Close()

	return b.Bytes(), err
}

func unpackMinutes(data []byte) ([]*Minute, error) {
	var minutes []*Minute
	err := json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(data)), 64<<20)).Decode(&minutes)
	return minutes, err
}

func writeRow(ctx context.Context, table storage.Table, instance string, hour time.Time,
	minutes []*Minute) error {
	data, err := packMinutes(minutes)
	if err != nil {
		return err
	}

	_, err = table.Transact(ctx, partition,
		[]storage.Op{{Kind: storage.Upsert, Key: rowKey(hour, instance),
			Values: map[string]any{"Minutes": data}}})
	return err
}

// eachRow reads all rows from the hour of "from" on. For each row it calls the function "each" with
// the row's key and minutes. If a row cannot be read, err is the reason, and eachRow goes on: the
// row lacks an hour of one instance, and the history of all others must be shown.
func eachRow(ctx context.Context, table storage.Table, from time.Time,
	each func(key string, minutes []*Minute, err error)) error {
	q := storage.Query{Partition: partition, From: from.UTC().Format(hourKey)}
	for {
		page, err := table.Range(ctx, q)
		if err != nil {
			return err
		}

		for _, row := range page.Rows {
			data, _ := row.Values["Minutes"].([]byte)
			minutes, err := unpackMinutes(data)
			each(row.Key, minutes, err)
			q.From, q.After = "", row.Key
		}

		if !page.More {
			return nil
		}
	}
}

// Expiry removes old rows of all instances.
type Expiry struct {
	Table storage.Table
	Now   func() time.Time
}

// RemoveExpired removes the rows whose retention is over, until none is left or ctx ends. It
// reports whether none is left.
func (e Expiry) RemoveExpired(ctx context.Context) (isDone bool, err error) {
	return upkeep.RemoveRows(ctx, e.Table, storage.Query{Partition: partition,
		To: e.Now().UTC().Add(-retention).Format(hourKey)})
}
