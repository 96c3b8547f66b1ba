package azure

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

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

// maxRow is the largest size of a row in bytes, from Azure's documentation ("Understanding the
// Table service data model"). The emulator does not check this limit. So checkRow checks it: a row
// that Azure would refuse also fails in tests with the emulator.
const maxRow = 1 << 20

// checkKey refuses characters that Azure's documentation forbids in a key. It also refuses an empty
// key. Azure allows an empty key, but in Weir an empty key is a mistake.
func checkKey(key string) error {
	if key == "" {
		return errors.New("an empty key")
	}

	bad := strings.IndexFunc(key, func(r rune) bool {
		return strings.ContainsRune(`/\#?`, r) || r < 0x20 || (r >= 0x7f && r < 0xa0)
	})
	if bad >= 0 {
		return fmt.Errorf("key %q: character %d is not allowed", key, bad)
	}

	return nil
}

func checkRow(op storage.Op) error {
	size := 4 + 2*len(op.Key)
	for name, v := range op.Values {
		size += 8 + 2*len(name) + valueSize(v)
	}

	if size > maxRow {
		return fmt.Errorf("row of about %d bytes", size)
	}

	return nil
}

// valueSize returns the size of a value in storage, in bytes. Storage keeps texts as UTF-16.
func valueSize(v any) int {
	switch v := v.(type) {
	case string:
		n := 4
		for _, r := range v {
			n += 2 * max(1, utf16.RuneLen(r))
		}
		return n

	case []byte:
		return 4 + len(v)
	}

	return 8
}
