package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"weir/internal/lane"
	"weir/internal/storage"
)

// The index leads from a subject or an ordering key to the entries that name it. So an erasure
// reads only these entries. A term is the beginning of the hash of a subject or of a key. For each
// term of an entry, the partition has an index row k_<term>_<key of the entry>. One transaction
// writes an entry with its index rows, and one transaction removes them. The column Terms repeats
// the terms, because the key itself is gone after an erasure.
const (
	termsColumn = "Terms"
	indexPrefix = "k_"
	// entriesEnd sorts after the key of each entry, which begins with a digit, and before all other
	// rows.
	entriesEnd = ":"
	// maxTerms limits the terms of an entry: the entry and its index rows fit into one transaction,
	// also when one more row is written with them.
	maxTerms = storage.MaxOps - 2
)

// termLength is the number of hexadecimal digits of a term.
const termLength = 32

// subjectTerm returns the term of a subject, or "" if there is no subject.
func subjectTerm(subject string) string {
	if subject == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("subject\x00" + subject))
	return hex.EncodeToString(sum[:])[:termLength]
}

// keyTerm returns the term of an ordering key, or "" if the key is empty.
func keyTerm(key string) string {
	if key == "" {
		return ""
	}
	return termOfErased(lane.ErasedKey(key))
}

// termOfErased returns the term of an erased key: the beginning of its hash.
func termOfErased(erasedKey string) string {
	_, hash, _ := strings.Cut(erasedKey, ":")
	return hash[:min(termLength, len(hash))]
}

// termsOf returns the terms of an entry with this subject and with these ordering keys, each term
// once.
func termsOf(subject string, keys []string) []string {
	terms := []string{subjectTerm(subject)}
	for _, key := range keys {
		terms = append(terms, keyTerm(key))
	}

	terms = slices.DeleteFunc(terms, func(term string) bool { return term == "" })
	slices.Sort(terms)
	return slices.Compact(terms)
}

// readTerms returns the terms in the column Terms.
func readTerms(row storage.Row) []string {
	text, _ := row.Values[termsColumn].(string)
	return strings.Fields(text)
}

func indexKey(term, entryKey string) string { return indexPrefix + term + "_" + entryKey }

// indexOps returns an operation on each index row of an entry.
func indexOps(kind storage.OpKind, entryKey string, terms []string) []storage.Op {
	ops := make([]storage.Op, len(terms))
	for i, term := range terms {
		ops[i] = storage.Op{Kind: kind, Key: indexKey(term, entryKey)}
		if kind != storage.Delete {
			ops[i].Values = map[string]any{}
		}
	}

	return ops
}

// findEntries returns the keys of the entries with a term.
func (l *Log) findEntries(ctx context.Context, term string) ([]string, error) {
	prefix := indexKey(term, "")
	read := storage.Query{Partition: partition, From: prefix, To: prefix + entriesEnd,
		Columns: []string{}}
	var keys []string
	for {
		page, err := l.Table.Range(ctx, read)
		if err != nil {
			return nil, err
		}

		for _, row := range page.Rows {
			keys = append(keys, strings.TrimPrefix(row.Key, prefix))
			read.After = row.Key
		}

		if !page.More {
			return keys, nil
		}
	}
}

// maxUpdates is far more than the processes that change one entry at the same time.
const maxUpdates = 50

var errContended = errors.New("the entry changes again and again")

// updateEntry reads an entry, and makes the operations that change returns for the entry's row. The
// operation on the entry itself must be conditional on the row's ETag. If a row has changed
// meanwhile, updateEntry begins anew, for up to maxUpdates times. If the entry is gone, or if
// change returns no operation, updateEntry does nothing.
func (l *Log) updateEntry(ctx context.Context, key string,
	change func(storage.Row) []storage.Op) error {
	for range maxUpdates {
		row, err := l.Table.Get(ctx, partition, key)
		if storage.Is(err, storage.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}

		ops := change(row)
		if len(ops) == 0 {
			return nil
		}

		if _, err = l.Table.Transact(ctx, partition, ops); !isOutdated(err) {
			return err
		}
	}

	return &storage.Error{Op: "audit", Kind: storage.Unavailable, Index: -1, Err: errContended}
}

// isAway reports whether storage has not answered definitely, so that the caller tries again later.
func isAway(err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return true
	}
	return false
}

// isOutdated reports whether a transaction was refused because a row has changed or is gone.
func isOutdated(err error) bool {
	return storage.Is(err, storage.Precondition) || storage.Is(err, storage.NotFound)
}
