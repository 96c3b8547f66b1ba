package dashboard

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
)

type auditView struct {
	*page
	Subject string // List has only changes of this subject; "" = changes of all subjects
	List    ChangeList
	IsFirst bool
}

// Parameter is one parameter of a Change.
type Parameter struct{ Name, Value string }

// Parameters returns the parameters of the change, sorted by name.
func (c Change) Parameters() []Parameter {
	var detail map[string]any
	if json.Unmarshal([]byte(c.Detail), &detail) != nil {
		return nil // Detail is not a JSON object, so it has no parameters
	}

	var parameters []Parameter
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		value, isText := detail[name].(string)
		if !isText {
			// no error is possible, because the value was read from JSON
			text, _ := json.Marshal(detail[name])
			value = string(text)
		}

		parameters = append(parameters, Parameter{name, value})
	}

	return parameters
}

// Reason returns the reason that the author of the change sent; "" = none.
func (c Change) Reason() string {
	for _, p := range c.Parameters() {
		if p.Name == "reason" {
			return p.Value
		}
	}
	return ""
}

func (d *Dashboard) auditPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	q := ChangeQuery{Subject: r.URL.Query().Get("subject"), Continue: r.URL.Query().Get("continue")}
	v := &auditView{page: p, Subject: q.Subject, IsFirst: q.Continue == ""}
	p.Title, p.Refresh = "Audit", v.IsFirst
	reading := d.newLoader(ctx, p)
	reading.loadPart("the audit log", func() (err error) {
		v.List, err = d.Source.Changes(ctx, q)
		return err
	})

	reading.waitAll()

	return v, nil
}
