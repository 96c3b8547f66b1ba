package history

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"weir/internal/storage"
)

const (
	partition = "history"
	hourKey   = "2006010215"
	// keep is how long the history is kept.
	keep = 8 * 24 * time.Hour
	// packedMax is what a row's column takes: 64 KiB, by Azure's documentation of the table
	// service's data model.
	packedMax = 64 << 10
)

func rowKey(hour time.Time, instance string) string { return hour.Format(hourKey) + "_" + instance }

// pack makes the column of an hour. Where very many lanes make it too large, they are put
// together.
func pack(minutes []*Minute) ([]byte, error) {
	data, err := compress(minutes)
	if err != nil || len(data) <= packedMax {
		return data, err
	}
	merged := make([]*Minute, len(minutes))
	for i, m := range minutes {
		c, total := m.clone(), m.Total()
		c.Lanes = map[int]*Lane{together: &total}
		merged[i] = c
	}
	return compress(merged)
}

// together is the number that stands for all lanes.
const together = -1

func compress(minutes []*Minute) ([]byte, error) {
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

func unpack(data []byte) ([]*Minute, error) {
	var minutes []*Minute
	err := json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(data)), 64<<20)).Decode(&minutes)
	return minutes, err
}

// write puts the minutes of one hour into the instance's row.
func write(ctx context.Context, table storage.Table, instance string, hour time.Time, minutes []*Minute) error {
	data, err := pack(minutes)
	if err != nil {
		return err
	}
	_, err = table.Transact(ctx, partition, []storage.Op{{Kind: storage.Upsert, Key: rowKey(hour, instance), Values: map[string]any{"Minutes": data}}})
	return err
}

// eachRow gives the rows from a moment on, by row key.
func eachRow(ctx context.Context, table storage.Table, from time.Time, each func(key string, minutes []*Minute)) error {
	q := storage.Query{Partition: partition, From: from.UTC().Format(hourKey)}
	for {
		page, err := table.Range(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			data, _ := row.Values["Minutes"].([]byte)
			minutes, err := unpack(data)
			if err != nil {
				return fmt.Errorf("history: row %q: %w", row.Key, err)
			}
			each(row.Key, minutes)
			q.From, q.After = "", row.Key
		}
		if !page.More {
			return nil
		}
	}
}

// old lists rows past their time, as many as one transaction can remove.
func old(ctx context.Context, table storage.Table, now time.Time) ([]storage.Op, error) {
	page, err := table.Range(ctx, storage.Query{Partition: partition, To: now.UTC().Add(-keep).Format(hourKey), Limit: storage.MaxOps, Columns: []string{"None"}})
	var ops []storage.Op
	for _, row := range page.Rows {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: row.Key})
	}
	return ops, err
}
