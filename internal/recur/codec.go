package recur

import (
	"maps"
	"time"

	"weir/internal/storage"
)

// toColumns returns the columns of the state. A zero time becomes the Unix epoch, because a table
// cannot store Go's zero time.
func (s State) toColumns() map[string]any {
	return map[string]any{
		"NextAt": columnTime(s.NextAt), "NextRun": s.NextRun, "Runs": s.Runs,
		"Anchor":    columnTime(s.Anchor),
		"SettledAt": columnTime(s.SettledAt), "CatchUp": s.CatchUp,
		"LastDueAt": columnTime(s.Last.DueAt), "LastRun": s.Last.Run,
		"LastMessage": s.Last.MessageID,
		"LastAt":      columnTime(s.Last.At), "SkippedAt": columnTime(s.SkippedAt),
		"Filed": s.Filed, "Skipped": s.Skipped, "Missed": s.Missed, "Refused": s.Refused,
		"Refusal": s.Refusal,
		"Calls":   s.Calls,
	}
}

func (s Schedule) toRow() map[string]any {
	v := s.State.toColumns()
	maps.Copy(v, map[string]any{
		"Cron": s.Cron, "TimeZone": s.TimeZone, "ContentType": s.ContentType,
		"CopiedFrom": s.CopiedFrom,
		"Overlap":    string(s.Overlap), "MissedMode": string(s.Definition.Missed),
		"Paused": s.Paused, "Start": columnTime(s.Start), "End": columnTime(s.End),
		"Version":   s.Version,
		"CreatedAt": columnTime(s.CreatedAt), "ChangedAt": columnTime(s.ChangedAt),
		"CreationID": s.creationID,
	})

	maps.Copy(v, s.columns)
	return v
}

// parseRow decodes a row, except the message, which loadMessage reads.
func parseRow(r storage.Row) Schedule {
	v := rowValues(r.Values)
	s := Schedule{
		Name: r.Key, creationID: v.string("CreationID"), etag: r.ETag, Version: v.string("Version"),
		CreatedAt: v.time("CreatedAt"),
		ChangedAt: v.time("ChangedAt"),
		Definition: Definition{
			Cron: v.string("Cron"), TimeZone: v.string("TimeZone"),
			ContentType: v.string("ContentType"),
			CopiedFrom:  v.string("CopiedFrom"),
			Overlap:     Overlap(v.string("Overlap")), Missed: Missed(v.string("MissedMode")),
			Paused: v.bool("Paused"),
			Start:  v.time("Start"), End: v.time("End"),
		},
		State: State{
			NextAt: v.time("NextAt"), NextRun: v.int("NextRun"), Runs: v.int("Runs"),
			Anchor:    v.time("Anchor"),
			SettledAt: v.time("SettledAt"), CatchUp: v.bool("CatchUp"),
			Last: Filed{DueAt: v.time("LastDueAt"), Run: v.int("LastRun"),
				MessageID: v.string("LastMessage"), At: v.time("LastAt")},
			SkippedAt: v.time("SkippedAt"), Filed: v.int("Filed"), Skipped: v.int("Skipped"),
			Missed:  v.int("Missed"),
			Refused: v.int("Refused"), Refusal: v.string("Refusal"), Calls: v.string("Calls"),
		},
		columns: map[string]any{},
	}

	for _, name := range []string{inlineColumn, blobColumn} {
		if r.Values[name] != nil {
			s.columns[name] = r.Values[name]
		}
	}

	return s
}

// rowValues reads columns by type. For a missing column it returns the zero value.
type rowValues map[string]any

func (v rowValues) string(name string) string { s, _ := v[name].(string); return s }
func (v rowValues) int(name string) int64     { n, _ := v[name].(int64); return n }
func (v rowValues) bool(name string) bool     { b, _ := v[name].(bool); return b }

func (v rowValues) time(name string) time.Time {
	t, _ := v[name].(time.Time)
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

func columnTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}
