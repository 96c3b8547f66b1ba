package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Entry is the record of one change or one reveal.
type Entry struct {
	At      time.Time
	Action  string // such as "pause" or "schedule.put"
	Subject string // id of a message, job or batch, or name of a schedule; "" = none
	Detail  string // parameters as JSON
	// the function whose key was checked; "command" = a command that opens storage
	Function   string
	Status     int    // status of the answer; 0 = no answer
	Principal  string // the person who signed in; "" = unknown
	KeyID      string // Fingerprint of the function key; "" = no key was sent
	From       string // addresses of the client and of proxies
	Invocation string // the host's id of the invocation

	RedactedAt time.Time // when an erasure last changed Detail; zero = never
	RedactedBy string    // ids of the erased messages, separated by spaces
}

// Author returns the name of the person who made the change. If the name is not known, Author
// returns the key's fingerprint, such as "key 3fa9c2d1". If the request had no key either, Author
// returns "".
func (e Entry) Author() string {
	if e.Principal == "" && e.KeyID != "" {
		return "key " + e.KeyID
	}
	return e.Principal
}

// Log writes and reads entries. Safe for concurrent use.
type Log struct {
	Table  storage.Table
	Keep   time.Duration // age at which entries are removed; 0 = never
	Now    func() time.Time
	Logger *slog.Logger
}

const (
	partition = "audit"
	// maxText limits the bytes of one column.
	maxText = 2 << 10
	// writeTimeout limits the time for which a caller waits until the entry is stored.
	writeTimeout = 5 * time.Second
)

// Record writes an entry with the present time to storage and to the process's log. It returns no
// error, because the change is already made and must not fail. If storage refuses the entry, Record
// logs that error.
func (l *Log) Record(ctx context.Context, e Entry) {
	e.At = l.Now().UTC()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	_, err := l.Table.Transact(limited, partition, insertOps(e))
	log := l.Logger.With("function", e.Function, "invocation_id", e.Invocation, "action", e.Action,
		"subject", e.Subject, "detail", e.Detail, "status", e.Status, "principal", e.Principal,
		"key_id", e.KeyID,
		"from", e.From)

	if err != nil {
		log.ErrorContext(limited, "audit: changed, and not recorded in storage", "err", err)
		return
	}

	log.InfoContext(limited, "audit: changed")
}

// truncatedDetail is the detail of an entry whose parameters do not fit into a row.
const truncatedDetail = `{"truncated":true}`

// insertOps returns the operations that store an entry with its index rows.
func insertOps(e Entry) []storage.Op {
	values := toColumns(e)
	subject, _ := values["Subject"].(string)
	detail, _ := values["Detail"].(string)
	terms := termsOf(subject, keysIn(detail))
	if len(terms) > maxTerms {
		terms, values["Detail"] = termsOf(subject, nil), truncatedDetail
	}

	values[termsColumn] = strings.Join(terms, " ")
	key := rowKey(e.At) + "_" + randomSuffix()

	return append([]storage.Op{{Kind: storage.Insert, Key: key, Values: values}},
		indexOps(storage.Insert, key, terms)...)
}

// rowKey returns the first part of a row key. A later time has a smaller key, so the newest entry
// sorts first.
func rowKey(at time.Time) string { return fmt.Sprintf("%019d", math.MaxInt64-at.UnixNano()) }

func randomSuffix() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	// the first digit becomes a letter, so a suffix never has only decimal digits
	b[0] |= 0xa0
	return hex.EncodeToString(b)
}

func toColumns(e Entry) map[string]any {
	return map[string]any{"At": e.At, "Action": truncateText(e.Action),
		"Subject": truncateText(e.Subject),
		"Detail":  truncateText(e.Detail), "Function": e.Function, "Status": int64(e.Status),
		"Principal": truncateText(e.Principal), "KeyID": e.KeyID, "From": truncateText(e.From),
		"Invocation": truncateText(e.Invocation)}
}

func truncateText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

func fromRow(row storage.Row) Entry {
	text := func(column string) string { s, _ := row.Values[column].(string); return s }
	at, _ := row.Values["At"].(time.Time)
	status, _ := row.Values["Status"].(int64)
	redactedAt, _ := row.Values["RedactedAt"].(time.Time)

	return Entry{At: at, Action: text("Action"), Subject: text("Subject"), Detail: text("Detail"),
		Function: text("Function"), Status: int(status), Principal: text("Principal"),
		KeyID: text("KeyID"),
		From:  text("From"), Invocation: text("Invocation"), RedactedAt: redactedAt,
		RedactedBy: text("RedactedBy")}
}

// Query selects entries. An empty Action or Subject matches every entry.
type Query struct {
	Action, Subject string
	Since           time.Time // only entries at or after Since; zero = all
	Limit           int       // largest number of entries
	Continue        string    // Page.Continue of the previous page; "" = first page
}

// Page is one page of entries, newest first. Continue is empty on the last page.
type Page struct {
	Entries  []Entry
	Continue string
}

// maxScanned limits the rows that Read reads for one page.
const maxScanned = 5000

// Read returns one page of entries. If Page.Continue is not empty, further entries can follow, even
// if the page has few entries or none.
func (l *Log) Read(ctx context.Context, q Query) (Page, error) {
	var page Page
	read := storage.Query{Partition: partition, After: q.Continue, To: entriesEnd}
	if !q.Since.IsZero() {
		read.To = rowKey(q.Since) + "`" // sorts after "_", which begins each suffix
	}

	for scanned := 0; ; {
		rows, err := l.Table.Range(ctx, read)
		if err != nil {
			return Page{}, readError(err)
		}

		for _, row := range rows.Rows {
			read.After = row.Key
			e := fromRow(row)
			if q.Action != "" && q.Action != e.Action || q.Subject != "" && q.Subject != e.Subject {
				continue
			}

			if page.Entries = append(page.Entries, e); len(page.Entries) == q.Limit {
				page.Continue = row.Key
				return page, nil
			}
		}

		scanned += len(rows.Rows)
		if !rows.More {
			return page, nil
		}

		if scanned >= maxScanned {
			page.Continue = read.After
			return page, nil
		}
	}
}

func readError(err error) error {
	if isAway(err) {
		return &weir.Error{Kind: weir.Unavailable, Op: "audit",
			RetryAfter: 5 * time.Second, Err: err,
			Message: "storage cannot be reached at the moment; try again"}
	}
	return fmt.Errorf("audit: read: %w", err)
}

// maxRemovals limits the pages of entries that one call of RemoveExpired removes.
const maxRemovals = 250

// RemoveExpired removes entries that are older than Keep. It reports whether it is done. If it is
// not, a later call goes on. If storage refuses to remove an entry, RemoveExpired removes the
// others and returns the first such error.
func (l *Log) RemoveExpired(ctx context.Context) (done bool, err error) {
	q := storage.Query{Partition: partition,
		From: rowKey(l.Now().Add(-cmp.Or(l.Keep, math.MaxInt64))),
		To:   entriesEnd, Limit: storage.MaxOps, Columns: []string{termsColumn}}
	var refused error
	for range maxRemovals {
		page, err := l.Table.Range(ctx, q)
		if err != nil {
			return false, err
		}

		for _, group := range groupRows(page.Rows) {
			err := l.removeRows(ctx, group)
			if isAway(err) {
				return false, err
			}

			if refused == nil {
				refused = err
			}
		}

		if !page.More {
			return true, refused
		}

		q.After = page.Rows[len(page.Rows)-1].Key
	}

	return false, refused
}

// groupRows cuts rows into groups. One transaction can remove the entries of a group with their
// index rows.
func groupRows(rows []storage.Row) (groups [][]storage.Row) {
	ops := storage.MaxOps
	for _, row := range rows {
		terms := readTerms(row)
		if ops += 1 + len(terms); ops > storage.MaxOps {
			groups, ops = append(groups, nil), 1+len(terms)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], row)
	}

	return groups
}

// removeRows removes a group of entries with their index rows. If storage refuses one of the
// operations, for example because a row has changed or is missing, removeRows removes the entries
// one by one, and returns the first refusal.
func (l *Log) removeRows(ctx context.Context, group []storage.Row) error {
	var ops []storage.Op
	for _, row := range group {
		ops = append(ops, removeOps(row)...)
	}

	if _, err := l.Table.Transact(ctx, partition, ops); err == nil || isAway(err) {
		return err
	}

	var refused error
	for _, row := range group {
		err := l.removeEntry(ctx, row.Key)
		if isAway(err) {
			return err
		}

		if refused == nil {
			refused = err
		}
	}

	return refused
}

// removeOps returns the operations that remove an entry with its index rows. They are conditional
// on the entry's ETag, because a redaction may change the entry meanwhile.
func removeOps(row storage.Row) []storage.Op {
	terms := readTerms(row)
	return append([]storage.Op{{Kind: storage.Delete, Key: row.Key, IfMatch: row.ETag}},
		indexOps(storage.Delete, row.Key, terms)...)
}

// removeEntry removes one entry. It first writes the entry's index rows again, because storage
// refuses to remove a missing row.
func (l *Log) removeEntry(ctx context.Context, key string) error {
	err := l.updateEntry(ctx, key, func(row storage.Row) []storage.Op {
		return append([]storage.Op{{Kind: storage.Merge, Key: key, IfMatch: row.ETag,
			Values: map[string]any{termsColumn: row.Values[termsColumn]}}},
			indexOps(storage.Upsert, key, readTerms(row))...)
	})
	if err != nil {
		return err
	}

	return l.updateEntry(ctx, key, removeOps)
}
