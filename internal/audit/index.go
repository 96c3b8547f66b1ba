package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// The index leads from a subject or an ordering key to the entries that name it. So an erasure reads only these
// entries. A term is the beginning of the hash of a subject or of a key. For each term of an entry, the partition has
// an index row k_<term>_<key of the entry>. One transaction writes an entry with its index rows, and one transaction
// removes them. The column Terms repeats the terms, because the key itself is gone after an erasure.
//
// Entries of earlier versions have no column Terms. indexOldEntries goes over them once. The row a_index has the
// position that it has reached. An earlier version that removes old entries also removes the rows of the index, and
// the row a_index is the first of them. Then indexOldEntries begins anew.
const (
	termsColumn = "Terms"
	indexPrefix = "k_"
	markerRow   = "a_index"
	// entriesEnd sorts after the key of each entry, which begins with a digit, and before all other rows.
	entriesEnd = ":"
	// maxTerms limits the terms of an entry: the entry and its index rows fit into one transaction, also when one more
	// row is written with them.
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

// termsOf returns the terms of an entry with this subject and with these ordering keys, each term once.
func termsOf(subject string, keys []string) []string {
	terms := []string{subjectTerm(subject)}
	for _, key := range keys {
		terms = append(terms, keyTerm(key))
	}
	terms = slices.DeleteFunc(terms, func(term string) bool { return term == "" })
	slices.Sort(terms)
	return slices.Compact(terms)
}

// readTerms returns the terms in the column Terms. It reports false if the row has no such column.
func readTerms(row storage.Row) (terms []string, isIndexed bool) {
	text, isIndexed := row.Values[termsColumn].(string)
	return strings.Fields(text), isIndexed
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
	read := storage.Query{Partition: partition, From: prefix, To: prefix + entriesEnd, Columns: []string{}}
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

const (
	// indexTime limits the time for which one call of Redact or RemoveExpired goes over entries of earlier versions.
	indexTime = 20 * time.Second
	// indexPage is the number of entries after which indexOldEntries stores its position.
	indexPage = 500
)

// indexOldEntries writes the missing index rows of entries of earlier versions, for at most indexTime. It reports
// whether no such entry is left. A later call goes on at the stored position.
func (l *Log) indexOldEntries(ctx context.Context) (done bool, err error) {
	marker, err := l.Table.Get(ctx, partition, markerRow)
	if err != nil && !storage.Is(err, storage.NotFound) {
		return false, err
	}
	if done, _ := marker.Values["Done"].(bool); done {
		return true, nil
	}
	after, _ := marker.Values["After"].(string)
	read := storage.Query{Partition: partition, After: after, To: entriesEnd, Limit: indexPage,
		Columns: []string{"Subject", "Detail", termsColumn}}
	for until := l.Now().Add(indexTime); l.Now().Before(until); {
		page, err := l.Table.Range(ctx, read)
		if err != nil {
			return false, err
		}
		if err := l.indexRows(ctx, page.Rows); err != nil {
			return false, err
		}
		if len(page.Rows) > 0 {
			read.After = page.Rows[len(page.Rows)-1].Key
		}
		_, err = l.Table.Transact(ctx, partition, []storage.Op{{Kind: storage.Upsert, Key: markerRow,
			Values: map[string]any{"After": read.After, "Done": !page.More}}})
		if err != nil || !page.More {
			return err == nil, err
		}
	}
	return false, nil
}

// indexRows indexes those entries among the rows that have no terms yet, as many as possible in one transaction.
func (l *Log) indexRows(ctx context.Context, rows []storage.Row) error {
	var group []storage.Row
	var ops []storage.Op
	for _, row := range rows {
		if _, isIndexed := readTerms(row); isIndexed {
			continue
		}
		one := indexEntryOps(row)
		if len(ops)+len(one) > storage.MaxOps {
			if err := l.indexGroup(ctx, group, ops); err != nil {
				return err
			}
			group, ops = nil, nil
		}
		group, ops = append(group, row), append(ops, one...)
	}
	return l.indexGroup(ctx, group, ops)
}

// indexGroup makes the operations that index a group of entries. If storage refuses one of them, indexGroup indexes the
// entries one by one, and logs the entries that storage refuses again.
func (l *Log) indexGroup(ctx context.Context, group []storage.Row, ops []storage.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if _, err := l.Table.Transact(ctx, partition, ops); err == nil || isAway(err) {
		return err
	}
	for _, row := range group {
		if err := l.indexEntry(ctx, row.Key); isAway(err) {
			return err
		} else if err != nil {
			l.Logger.ErrorContext(ctx, "audit: entry not indexed, so no erasure finds it", "err", err)
		}
	}
	return nil
}

// indexEntry indexes one entry, if it exists and has no terms yet.
func (l *Log) indexEntry(ctx context.Context, key string) error {
	return l.updateEntry(ctx, key, func(row storage.Row) []storage.Op {
		if _, isIndexed := readTerms(row); isIndexed {
			return nil
		}
		return indexEntryOps(row)
	})
}

// indexEntryOps returns the operations that index an entry of an earlier version. If the entry has more keys than fit
// into a transaction, the detail is removed.
func indexEntryOps(row storage.Row) []storage.Op {
	e := fromRow(row)
	terms := termsOf(e.Subject, slices.DeleteFunc(keysIn(e.Detail), isErasedKey))
	values := map[string]any{}
	if len(terms) > maxTerms {
		terms, values["Detail"] = termsOf(e.Subject, nil), truncatedDetail
	}
	values[termsColumn] = strings.Join(terms, " ")
	return append([]storage.Op{{Kind: storage.Merge, Key: row.Key, IfMatch: row.ETag, Values: values}},
		indexOps(storage.Upsert, row.Key, terms)...)
}

// maxUpdates is far more than the processes that change one entry at the same time.
const maxUpdates = 50

var errContended = errors.New("the entry changes again and again")

// updateEntry reads an entry, and makes the operations that change returns for the entry's row. The operation on the
// entry itself must be conditional on the row's ETag. If a row has changed meanwhile, updateEntry begins anew, for up
// to maxUpdates times. If the entry is gone, or if change returns no operation, updateEntry does nothing.
func (l *Log) updateEntry(ctx context.Context, key string, change func(storage.Row) []storage.Op) error {
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

func notIndexedError() error {
	return &weir.Error{Kind: weir.Unavailable, Op: "audit", RetryAfter: time.Second,
		Message: "the index of old audit entries is not complete yet; ask again to go on"}
}
