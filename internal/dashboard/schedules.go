package dashboard

import (
	"context"
	"net/http"

	"weir/internal/wire"
)

type schedulesView struct {
	*page
	Schedules []Schedule
	Scheduled wire.MessageList
	IsFirst   bool // the first page of scheduled messages
}

// schedulesPage lists the recurring messages, and the scheduled messages by due time.
func (d *Dashboard) schedulesPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	token := r.URL.Query().Get("continue")
	v := &schedulesView{page: p, IsFirst: token == ""}
	p.Title, p.Refresh = "Schedules", true
	reading := d.newLoader(ctx, p)
	reading.loadSchedules(&v.Schedules)
	reading.loadPart("the scheduled messages", func() (err error) {
		v.Scheduled, err = d.Schedules.Scheduled(ctx, token)
		return err
	})
	reading.waitAll()
	return v, nil
}

type scheduleView struct {
	*page
	S ScheduleDetail
}

// schedulePage shows a recurring message with its next runs. The address has the name as a parameter and not in
// its path, because a name may begin with a dot.
func (d *Dashboard) schedulePage(ctx context.Context, p *page, r *http.Request) (view, error) {
	s, err := d.Schedules.Schedule(ctx, r.URL.Query().Get("name"))
	if err != nil {
		return nil, err
	}
	p.Title, p.Refresh = "Schedule "+s.Name, true
	return &scheduleView{p, s}, nil
}
