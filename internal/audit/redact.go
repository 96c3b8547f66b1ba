package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/storage"
)

// redactedAtOnce limits the entries that one call of Redact changes at the same time.
const redactedAtOnce = 8

// Redact removes the content of an erased message from the log. The parameter subject is the
// message's id, and erasedKey is lane.ErasedKey of the message's ordering key. Redact empties the
// Detail of all entries with that subject. In the Detail of all other entries it replaces each
// value that is the key by erasedKey; see replaceKeys. It changes no other entry, and reads no
// other entry either. RedactedAt and RedactedBy of a changed entry show the redaction.
//
// A key is found by its hash. So Redact also works for a message that was erased before, whose key
// is not known any more: an entry can reach storage after the erasure.
//
// If storage refuses to change an entry, Redact logs that and goes on, so that one entry does not
// keep the message from being erased. If Redact returns an error, the caller can call Redact again.
func (l *Log) Redact(ctx context.Context, subject, erasedKey string) error {
	r := redaction{log: l, subject: subject, erasedKey: erasedKey}
	for _, term := range []string{subjectTerm(subject), termOfErased(erasedKey)} {
		entries, err := l.findEntries(ctx, term)
		if err != nil {
			return readError(err)
		}

		var work errgroup.Group
		work.SetLimit(redactedAtOnce)
		for _, entry := range entries {
			work.Go(panics.Guard(func() error { return r.redactEntry(ctx, entry) }))
		}

		if err := work.Wait(); err != nil {
			return readError(err)
		}
	}

	return nil
}

// redaction has the parameters of one call of Redact.
type redaction struct {
	log                *Log
	subject, erasedKey string
}

// redactEntry redacts one entry. It returns an error only if storage could not be reached.
func (r redaction) redactEntry(ctx context.Context, entry string) error {
	err := r.log.updateEntry(ctx, entry, r.redactOps)
	if isAway(err) {
		return err
	}

	if err != nil {
		r.log.Logger.ErrorContext(ctx, "audit: entry not redacted", "subject", r.subject,
			"err", err)
	}

	return nil
}

// redactOps returns the operation that redacts an entry, or nil if the entry has nothing to redact.
// The operation is conditional, so no redaction undoes another one, even if it reaches storage
// late.
func (r redaction) redactOps(row storage.Row) []storage.Op {
	e := fromRow(row)
	detail := replaceKeyIn(e.Detail, r.erasedKey)
	if e.Subject == r.subject {
		detail = ""
	}

	if detail == e.Detail {
		return nil
	}

	return []storage.Op{{Kind: storage.Merge, Key: row.Key, IfMatch: row.ETag,
		Values: map[string]any{
			"Detail": detail, "RedactedAt": r.log.Now().UTC().Truncate(time.Microsecond),
			"RedactedBy": addID(e.RedactedBy, r.subject)}}}
}

// addID adds an id to a list of ids that are separated by spaces. If the list would be longer than
// maxText, the oldest ids leave it.
func addID(list, id string) string {
	ids := strings.Fields(list)
	if !slices.Contains(ids, id) {
		ids = append(ids, id)
	}

	for len(ids) > 1 && len(strings.Join(ids, " ")) > maxText {
		ids = ids[1:]
	}

	return strings.Join(ids, " ")
}

// keysIn returns the ordering keys in the detail of an entry. A detail that is not JSON has none.
func keysIn(detail string) (keys []string) {
	value, err := decodeDetail(detail)
	if err != nil {
		return nil
	}

	replaceKeys(value, func(key string) string {
		keys = append(keys, key)
		return key
	})

	return keys
}

// replaceKeyIn replaces the key with this hash in the detail of an entry. A detail without the key
// stays the same text.
func replaceKeyIn(detail, erasedKey string) string {
	value, err := decodeDetail(detail)
	if err != nil {
		return detail
	}

	isFound := false
	replaceKeys(value, func(key string) string {
		if key == "" || lane.ErasedKey(key) != erasedKey {
			return key
		}
		isFound = true
		return erasedKey
	})

	if !isFound {
		return detail
	}

	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}

	return string(text)
}

func decodeDetail(detail string) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(detail)))
	d.UseNumber() // a number must not change because the entry is redacted
	err = d.Decode(&value)
	return value, err
}

// keyFields are the fields of a detail that hold ordering keys, at any depth: a key, or a list of
// keys. The value of keyPrefix is the beginning of many keys. It counts as a key only if it is the
// whole key.
var keyFields = []string{"key", "keyPrefix", "keys"}

// replaceKeys calls replace for each ordering key in a decoded detail, and puts the result in the
// key's place. It leaves all other texts as they are: a reason, a cron expression or a name can
// contain the same characters as a key.
func replaceKeys(value any, replace func(key string) string) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			// A caller can write the name of a field in other cases, and the entry has it so.
			if slices.ContainsFunc(keyFields,
				func(field string) bool { return strings.EqualFold(field, name) }) {
				v[name] = replaceIn(inner, replace)
				continue
			}

			replaceKeys(inner, replace)
		}

	case []any:
		for _, inner := range v {
			replaceKeys(inner, replace)
		}
	}
}

// replaceIn replaces the keys in the value of a field that holds keys.
func replaceIn(value any, replace func(key string) string) any {
	switch v := value.(type) {
	case string:
		return replace(v)
	case []any:
		for i, inner := range v {
			v[i] = replaceIn(inner, replace)
		}

	default:
		replaceKeys(value, replace)
	}

	return value
}
