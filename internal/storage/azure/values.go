package azure

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"weir/internal/storage"
)

// timeLayout is the layout of a time in storage. Storage keeps seven decimal places of a second.
const timeLayout = "2006-01-02T15:04:05.0000000Z"

const typeSuffix = "@odata.type"

func encodeFloat(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}

	return f
}

func toRow(entity map[string]any) (storage.Row, error) {
	r := storage.Row{Values: make(map[string]any)}
	r.Partition, _ = entity["PartitionKey"].(string)
	r.Key, _ = entity["RowKey"].(string)
	etag, _ := entity["odata.etag"].(string)
	r.ETag = storage.ETag(etag)
	if text, hasTime := entity["Timestamp"].(string); hasTime {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return storage.Row{}, fmt.Errorf("decode the time of the write: %w", err)
		}
		r.WrittenAt = at.UTC()
	}

	for name, raw := range entity {
		if raw == nil || isSystem(name) {
			continue
		}

		edm, _ := entity[name+typeSuffix].(string)
		v, err := decodeValue(raw, edm)
		if err != nil {
			return storage.Row{}, fmt.Errorf("decode value %s: %w", name, err)
		}

		r.Values[name] = v
	}

	return r, nil
}

func isSystem(name string) bool {
	switch name {
	case "PartitionKey", "RowKey", "Timestamp":
		return true
	}
	return strings.HasPrefix(name, "odata.") || strings.Contains(name, "@odata.")
}

func decodeValue(raw any, edm string) (any, error) {
	text, ok := raw.(string)
	if !ok {
		return raw, nil // a bool or a float64; Weir stores no Edm.Int32
	}

	switch edm {
	case "Edm.Int64":
		return strconv.ParseInt(text, 10, 64)
	case "Edm.Double":
		return strconv.ParseFloat(text, 64)
	case "Edm.Binary":
		return base64.StdEncoding.DecodeString(text)
	case "Edm.DateTime":
		t, err := time.Parse(time.RFC3339Nano, text)
		return t.UTC(), err
	}

	return text, nil
}
