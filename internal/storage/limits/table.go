package limits

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"weir/internal/storage"
)

// Limits of a row, from Azure's documentation ("Understanding the Table service data model").
const (
	maxProperty   = 64 << 10 // bytes of a value; texts count as UTF-16
	maxRow        = 1 << 20
	maxKey        = 1 << 10
	maxProperties = 252
	maxName       = 255
)

// opBytes is the approximate size of one operation in a transaction's request, without the row's
// values.
const opBytes = 600

var errTooLarge = errors.New("over the limit")

// CheckTransaction refuses a transaction that breaks one of Azure's limits or rules. It does not
// look at stored rows.
func CheckTransaction(partition string, ops []storage.Op) error {
	switch {
	case len(ops) == 0:
		return refusedError(-1, errors.New("no operations"))
	case len(ops) > storage.MaxOps:
		return refusedError(-1, fmt.Errorf("%d operations: %w", len(ops), errTooLarge))
	case !isValidKey(partition):
		return refusedError(-1, fmt.Errorf("partition key %q", partition))
	}

	seen, total := make(map[string]bool, len(ops)), 0
	for i, op := range ops {
		sent, err := checkOp(op)
		if err == nil && seen[op.Key] {
			err = errors.New("a second operation on the same row")
		}

		if err != nil {
			return refusedError(i, err)
		}

		seen[op.Key] = true
		total += sent
	}

	if total > storage.MaxPayloadBytes {
		return refusedError(-1, fmt.Errorf("%d bytes: %w", total, errTooLarge))
	}

	return nil
}

func refusedError(index int, err error) error {
	kind := storage.Other
	if errors.Is(err, errTooLarge) {
		kind = storage.TooLarge
	}
	return &storage.Error{Op: "table transact", Kind: kind, Index: index, Err: err}
}

// checkOp returns the approximate size of an operation in its request, or an error if Azure would
// refuse the operation.
func checkOp(op storage.Op) (sent int, err error) {
	switch {
	case op.Kind < storage.Insert || op.Kind > storage.Upsert:
		return 0, fmt.Errorf("unknown kind of operation %d", op.Kind)
	case !isValidKey(op.Key):
		return 0, fmt.Errorf("row key %q", op.Key)
	case op.Kind == storage.Delete:
		return opBytes, nil
	}

	stored, sent, err := rowSize(op.Values)
	if err == nil && stored > maxRow {
		err = fmt.Errorf("row of %d bytes: %w", stored, errTooLarge)
	}

	return opBytes + sent, err
}

// rowSize returns the size of a row in storage, and the approximate size of the row's JSON, both in
// bytes.
func rowSize(values map[string]any) (stored, sent int, err error) {
	for name, value := range values {
		if value == nil {
			continue
		}
		if !isValidName(name) {
			return 0, 0, fmt.Errorf("value name %q", name)
		}

		keeps, sends, err := valueSize(value)
		if err != nil {
			return 0, 0, fmt.Errorf("value %s: %w", name, err)
		}
		if keeps > maxProperty {
			return 0, 0, fmt.Errorf("value %s of %d bytes: %w", name, keeps, errTooLarge)
		}

		stored += keeps + 2*len(name) + 8
		sent += sends + 2*len(name) + 40
	}

	if len(values) > maxProperties {
		return 0, 0, fmt.Errorf("%d values: %w", len(values), errTooLarge)
	}

	return stored, sent, nil
}

func valueSize(value any) (stored, sent int, err error) {
	switch v := value.(type) {
	case int64, bool, float64:
		return 8, 20, nil
	case time.Time:
		// Azure accepts times from the year 1601 on. Go's zero time is earlier.
		if y := v.UTC().Year(); y < 1601 || y > 9999 {
			return 0, 0, fmt.Errorf("time in the year %d", y)
		}
		return 8, 30, nil

	case string:
		return 2 * utf16Len(v), jsonLen(v), nil
	case []byte:
		return len(v), (len(v) + 2) / 3 * 4, nil
	}

	return 0, 0, fmt.Errorf("a %T cannot be stored", value)
}

// utf16Len returns the length of s in UTF-16 units, in which Azure measures texts.
func utf16Len(s string) (n int) {
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// jsonLen returns the approximate length of s as a JSON string. JSON writes markup and control
// characters in six bytes.
func jsonLen(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			n++
		case c < 0x20, c == '<', c == '>', c == '&':
			n += 5
		}
	}

	return n
}

// isValidName reports whether Azure's rule for property names allows this name. The rule also
// reserves some names.
func isValidName(name string) bool {
	switch name {
	case "", "PartitionKey", "RowKey", "Timestamp":
		return false
	}

	for i, r := range name {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}

	return utf16Len(name) <= maxName
}

func isValidKey(key string) bool {
	return key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, func(r rune) bool {
		return strings.ContainsRune(`/\#?`, r) || unicode.IsControl(r)
	})
}
