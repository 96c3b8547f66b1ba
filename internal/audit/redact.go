package audit

import (
	"context"
	"encoding/json"
	"strings"

	"weir/internal/storage"
)

// Redact removes the content of an erased message from all entries. The parameter subject is the message's id, and text
// is the message's ordering key. Redact empties the Detail of all entries with that subject. In the Detail of all other
// entries it replaces text by replacement. If Redact returns an error, the caller can call Redact again.
func (l *Log) Redact(ctx context.Context, subject, text, replacement string) error {
	for read := (storage.Query{Partition: partition}); ; {
		page, err := l.Table.Range(ctx, read)
		if err != nil {
			return readError(err)
		}
		for _, row := range page.Rows {
			read.After = row.Key
			e := fromRow(row)
			detail := redactDetail(e.Detail, text, replacement)
			if e.Subject == subject {
				detail = ""
			}
			if detail == e.Detail {
				continue
			}
			_, err := l.Table.Transact(ctx, partition, []storage.Op{{Kind: storage.Merge, Key: row.Key,
				Values: map[string]any{"Detail": detail}}})
			if err != nil && !storage.Is(err, storage.NotFound) { // NotFound: RemoveExpired removed the entry
				return readError(err)
			}
		}
		if !page.More {
			return nil
		}
	}
}

// redactDetail replaces a text in all string values of detail. If detail is not JSON, redactDetail replaces the text
// everywhere.
func redactDetail(detail, text, replacement string) string {
	if text == "" || detail == "" {
		return detail
	}
	var value any
	if json.Unmarshal([]byte(detail), &value) != nil {
		return strings.ReplaceAll(detail, text, replacement)
	}
	redacted, isChanged := redactValue(value, text, replacement)
	if !isChanged {
		return detail
	}
	out, err := json.Marshal(redacted)
	if err != nil {
		return ""
	}
	return string(out)
}

// redactValue replaces a text in all strings of a JSON value, and reports whether any of them had the text.
func redactValue(value any, text, replacement string) (redacted any, isChanged bool) {
	switch v := value.(type) {
	case string:
		out := strings.ReplaceAll(v, text, replacement)
		return out, out != v
	case map[string]any:
		for name, inner := range v {
			if out, changed := redactValue(inner, text, replacement); changed {
				v[name], isChanged = out, true
			}
		}
	case []any:
		for i, inner := range v {
			if out, changed := redactValue(inner, text, replacement); changed {
				v[i], isChanged = out, true
			}
		}
	}
	return value, isChanged
}
