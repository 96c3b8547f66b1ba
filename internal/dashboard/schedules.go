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
	IsFirst   bool // Scheduled is the first page of the list
}

func (d *Dashboard) schedulesPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	token := r.URL.Query().Get("continue")
	v := &schedulesView{page: p, IsFirst: token == ""}
	p.Title, p.Refresh = "Schedules", true
	reading := d.newLoader(ctx, p)
	reading.loadSchedules(&v.Schedules)
	reading.loadPart("the scheduled messages", func() (err error) {
		v.Scheduled, err = d.Source.Scheduled(ctx, token)
		return err
	})

	reading.waitAll()

	return v, nil
}

type scheduleView struct {
	*page
	S ScheduleDetail
}

// schedulePage shows a schedule. The schedule's name is a parameter of the address, and not a part
// of the path. So the page is reachable even if the name begins with a dot.
func (d *Dashboard) schedulePage(ctx context.Context, p *page, r *http.Request) (view, error) {
	s, err := d.Source.Schedule(ctx, r.URL.Query().Get("name"))
	if err != nil {
		return nil, err
	}
	p.Title, p.Refresh = "Schedule "+s.Name, true
	return &scheduleView{p, s}, nil
}
