package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"weir/internal/weir"
	"weir/internal/wire"
)

type clustersView struct {
	*page
	Clusters wire.ErrorList
}

func (d *Dashboard) clustersPage(ctx context.Context, p *page, _ *http.Request) (view, error) {
	v := &clustersView{page: p}
	p.Title, p.Refresh = "Errors", true
	reading := d.newLoader(ctx, p)
	reading.loadErrors(shortAge, &v.Clusters)
	reading.waitAll()
	return v, nil
}

type clusterView struct {
	*page
	C        wire.ErrorCause
	Gone     bool // no dead message with this error was found
	Messages []wire.MessageLine
	More     bool // the error has more messages than the list
	Jobs     []wire.Job
}

// clusterPage shows an error with its newest dead messages, and with the bulk replays that select
// the error.
func (d *Dashboard) clusterPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	fingerprint := r.PathValue("fingerprint")
	v := &clusterView{page: p, C: wire.ErrorCause{Fingerprint: fingerprint}, Gone: true}
	p.Title, p.Refresh = "Error "+fingerprint, true
	var all wire.ErrorList
	var jobs []wire.Job
	reading := d.newLoader(ctx, p)
	reading.loadErrors(shortAge, &all)
	reading.loadReplays(&jobs)
	reading.waitAll()

	for _, c := range all.Errors {
		if c.Fingerprint == fingerprint {
			v.C, v.Gone = c, false
		}
	}

	for _, j := range jobs {
		if j.Filter.Fingerprint == fingerprint {
			v.Jobs = append(v.Jobs, j)
		}
	}

	if !v.Gone {
		reading.loadPart("the messages", func() error { return d.loadClusterMessages(ctx, v) })
		reading.waitAll()
	}

	return v, nil
}

// loadClusterMessages loads the newest dead messages of an error.
func (d *Dashboard) loadClusterMessages(ctx context.Context, v *clusterView) error {
	found, err := d.Source.Search(ctx,
		Query{Stage: string(weir.Dead), Fingerprint: v.C.Fingerprint, Lane: -1, Limit: pageSize})
	v.Messages, v.More = found.Messages, len(found.Messages) < v.C.Count
	return err
}

type jobsView struct {
	*page
	Jobs      []wire.Job
	Contracts []option
	Key, Lane string
}

func (d *Dashboard) jobsPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	v := &jobsView{page: p, Contracts: selectOptions(r.URL.Query().Get("contract"), "any contract",
		d.Contracts...), Key: r.URL.Query().Get("key"), Lane: laneNumber(r)}
	p.Title, p.Refresh = "Replays", true
	reading := d.newLoader(ctx, p)
	reading.loadReplays(&v.Jobs)
	reading.waitAll()
	return v, nil
}

// laneNumber returns the lane in the address, or "" if the address has no valid lane number.
func laneNumber(r *http.Request) string {
	text := r.URL.Query().Get("lane")
	if _, err := strconv.ParseUint(text, 10, 16); err != nil {
		return ""
	}
	return text
}

type jobView struct {
	*page
	J    wire.Job
	Look badge
}

func (d *Dashboard) jobPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	j, err := d.Source.Replay(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p.Title, p.Refresh = "Replay "+cmp.Or(j.Reason, j.ID), true
	return &jobView{p, j, jobStateBadge(j.State)}, nil
}

type pausesView struct {
	*page
	Report    wire.LaneList
	Pauses    []wire.Pause
	Automatic []wire.Lane // lanes that an operator did not pause: PausedBy is "calendar" or "cms"
	Key, Lane string
}

func (d *Dashboard) pausesPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	v := &pausesView{page: p, Key: r.URL.Query().Get("key"), Lane: laneNumber(r)}
	p.Title, p.Refresh = "Pauses", true
	reading := d.newLoader(ctx, p)
	reading.loadLanes(&v.Report)
	reading.waitAll()

	for _, l := range v.Report.Lanes {
		v.Pauses = append(v.Pauses, l.Pauses...)
		if l.PausedBy != "" && l.PausedBy != "operator" {
			v.Automatic = append(v.Automatic, l)
		}
	}

	return v, nil
}
