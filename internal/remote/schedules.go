package remote

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"weir/internal/wire"
)

// Schedules lists all schedules.
func (c *Client) Schedules(ctx context.Context) (Answer[wire.ScheduleList], error) {
	return getJSON[wire.ScheduleList](ctx, c, "/schedules", nil)
}

// PutSchedule stores a schedule. If mayReplace is true, PutSchedule can replace a schedule of the
// same name. If mayReplace is false and such a schedule exists, PutSchedule returns an error of
// kind Refused.
func (c *Client) PutSchedule(ctx context.Context, name string, d wire.ScheduleDefinition,
	mayReplace bool) (Answer[wire.Schedule], error) {
	r := request{method: http.MethodPut, path: schedulePath(name)}
	if !mayReplace {
		r.ifNoneMatch = "*"
	}
	return sendJSON[wire.Schedule](ctx, c, r, d)
}

// PauseSchedule pauses a schedule.
func (c *Client) PauseSchedule(ctx context.Context, name string) (Answer[wire.Schedule], error) {
	return readAnswer[wire.Schedule](ctx, c,
		request{method: http.MethodPost, path: schedulePath(name) + "/pause"})
}

// ResumeSchedule resumes a schedule.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (Answer[wire.Schedule], error) {
	return readAnswer[wire.Schedule](ctx, c,
		request{method: http.MethodPost, path: schedulePath(name) + "/resume"})
}

// RunSchedule makes Weir accept a schedule's message now. The schedule's next occurrence does not
// change.
func (c *Client) RunSchedule(ctx context.Context, name string) (Answer[wire.RunReceipt], error) {
	return readAnswer[wire.RunReceipt](ctx, c,
		request{method: http.MethodPost, path: schedulePath(name) + "/run"})
}

// DeleteSchedule deletes a schedule.
func (c *Client) DeleteSchedule(ctx context.Context, name string) (Answer[struct{}], error) {
	return readAnswer[struct{}](ctx, c,
		request{method: http.MethodDelete, path: schedulePath(name)})
}

// PreviewSchedule returns the next occurrences of a stored schedule. count is their number.
func (c *Client) PreviewSchedule(ctx context.Context, name string,
	count int) (Answer[wire.SchedulePreview], error) {
	return getJSON[wire.SchedulePreview](ctx, c, schedulePath(name)+"/preview", countQuery(count))
}

// TryDefinition checks a definition and returns the next occurrences, without storing a schedule.
// count is their number.
func (c *Client) TryDefinition(ctx context.Context, name string, d wire.ScheduleDefinition,
	count int) (Answer[wire.SchedulePreview], error) {
	r := request{method: http.MethodPost, path: schedulePath(name) + "/preview",
		query: countQuery(count)}
	return sendJSON[wire.SchedulePreview](ctx, c, r, d)
}

func schedulePath(name string) string { return "/schedules/" + url.PathEscape(name) }

func countQuery(count int) url.Values { return url.Values{"count": {strconv.Itoa(count)}} }
