package schedules

import (
	"context"
	"strconv"

	"weir/internal/export"
	"weir/internal/wire"
)

// newExport returns the export of the schedules, which has one page.
func (f *Function) newExport() *export.List[wire.Schedule] {
	return &export.List[wire.Schedule]{File: "schedules", Name: "schedules", Now: f.Now,
		Log: f.Logger,
		Columns: []string{"name", "cron", "timeZone", "paused", "start", "end", "overlap",
			"missed", "nextAt", "lastDueAt",
			"lastMessageId", "filed", "skipped", "missedRuns", "refused", "refusal", "createdAt",
			"changedAt"},
		NewRecord: newScheduleRecord,
		ReadPage: func(ctx context.Context, _ int, _ string) (export.Page[wire.Schedule], error) {
			all, err := f.listSchedules(ctx)
			return export.Page[wire.Schedule]{Lines: all, End: struct{}{}}, err
		}}
}

func newScheduleRecord(s wire.Schedule) []string {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	st, nextAt := s.State, ""
	if st.NextAt != nil {
		nextAt = export.FormatTime(*st.NextAt)
	}

	return []string{s.Name, s.Cron, s.TimeZone, strconv.FormatBool(s.Paused),
		export.FormatTime(s.Start), export.FormatTime(s.End), s.Overlap, s.Missed, nextAt,
		export.FormatTime(st.LastDueAt), st.LastMessageID, count(st.Filed), count(st.Skipped),
		count(st.Missed),
		count(st.Refused), st.Refusal, export.FormatTime(st.CreatedAt),
		export.FormatTime(st.ChangedAt)}
}
