package dashboard

import (
	"context"
	"net/http"
)

type auditView struct {
	*page
	List    ChangeList
	IsFirst bool
}

func (d *Dashboard) auditPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	token := r.URL.Query().Get("continue")
	v := &auditView{page: p, IsFirst: token == ""}
	p.Title, p.Refresh = "Audit", v.IsFirst
	reading := d.newLoader(ctx, p)
	reading.loadPart("the audit log", func() (err error) {
		v.List, err = d.Changes.Changes(ctx, token)
		return err
	})
	reading.waitAll()
	return v, nil
}
