package dashboard

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Base is the path of the first page.
const Base = "/api/dashboard"

// timeLimit limits the time for one request, and for each load of data.
const timeLimit = 10 * time.Second

// policy allows a page to contact only its own origin. Images can also be data: URLs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Config has the source of the pages. All fields are required, except ProofFor, SignOut, Contracts
// and Upstreams.
type Config struct {
	Source Source
	Reads  Reads
	// ProofFor returns the proof of sign-in that the page sends with each change; "" = no person
	// has signed in. nil = no sign-in is required.
	ProofFor func(r *http.Request) string
	// SignOut is the path of the sign-out; "" = the page has no sign-in of its own.
	SignOut   string
	Contracts []string // names of the contracts, for the search
	// names of the upstreams, for the search; nil = the settings name no upstream
	Upstreams []string
	Now       func() time.Time
	Log       *slog.Logger
}

// Dashboard serves the pages. It is safe for concurrent use.
type Dashboard struct {
	Config
	mux *http.ServeMux

	lanes     cache[wire.LaneList]
	past      cache[History]        // by name of the time span
	errors    cache[wire.ErrorList] // by the number of dead messages in each lane
	replays   cache[[]wire.Job]
	batches   cache[[]wire.Batch]
	schedules cache[[]Schedule]
	changesOf cache[ChangeList]         // by message id
	obstacles cache[string]             // by message id
	stagesOf  cache[map[weir.Stage]int] // by batch id and the number of parts that became messages
}

//go:embed templates/*.html
var templateFiles embed.FS

// New returns a Dashboard.
func New(cfg Config) *Dashboard {
	d := &Dashboard{Config: cfg, mux: http.NewServeMux()}
	d.mux.HandleFunc(Base, d.servePage("overview", d.overviewPage))
	d.mux.HandleFunc(Base+"/{$}", d.servePage("overview", d.overviewPage))
	d.mux.HandleFunc(Base+"/messages", d.servePage("search", d.searchPage))
	d.mux.HandleFunc(Base+"/messages/{id}", d.servePage("story", d.messagePage))
	d.mux.HandleFunc(Base+"/messages/{id}/text", d.serveText)
	d.mux.HandleFunc(Base+"/errors", d.servePage("errors", d.clustersPage))
	d.mux.HandleFunc(Base+"/errors/{fingerprint}", d.servePage("cluster", d.clusterPage))
	d.mux.HandleFunc(Base+"/replays", d.servePage("replays", d.jobsPage))
	d.mux.HandleFunc(Base+"/replays/{id}", d.servePage("job", d.jobPage))
	d.mux.HandleFunc(Base+"/batches", d.servePage("batches", d.batchesPage))
	d.mux.HandleFunc(Base+"/batches/{id}", d.servePage("batch", d.batchPage))
	d.mux.HandleFunc(Base+"/schedules", d.servePage("schedules", d.schedulesPage))
	d.mux.HandleFunc(Base+"/schedule", d.servePage("schedule", d.schedulePage))
	d.mux.HandleFunc(Base+"/pauses", d.servePage("pauses", d.pausesPage))
	d.mux.HandleFunc(Base+"/audit", d.servePage("audit", d.auditPage))
	d.mux.HandleFunc(Base+"/assets/{file}", serveAsset)
	d.mux.HandleFunc("/", d.servePage("missing", d.notFoundView))

	return d
}

func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	d.mux.ServeHTTP(w, r)
}

// view is the data of a page's template. Each view embeds page.
type view interface{ status() int }

// servePage returns a handler that executes the named template with the view that build returns. If
// build fails, the handler shows the error on a page.
func (d *Dashboard) servePage(name string,
	build func(ctx context.Context, p *page, r *http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeLimit)
		defer cancel()
		p, shown := d.newPage(r, name), name
		defer p.releaseAll()
		v, err := build(ctx, p, r)
		if err != nil {
			v, shown = d.failedView(p, r, err), "failed"
		}

		var out bytes.Buffer
		if err := templates()[shown].ExecuteTemplate(&out, "layout.html", v); err != nil {
			httpio.WriteError(w, r, d.Log, err)
			return
		}

		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(v.status())
		w.Write(out.Bytes())
	}
}

// failure is the view of a page that shows an error.
type failure struct {
	*page
	Text string
}

func (d *Dashboard) failedView(p *page, r *http.Request, err error) view {
	p.code, p.Title = httpio.Status(err), "Not shown"
	text := "This could not be read. Try again; the log says why."
	if e, ok := asError(err); ok && e.Kind != weir.Internal {
		text = e.Message
	} else {
		d.Log.Error("dashboard: failed", "invocation_id", httpio.InvocationID(r), "err", err)
	}

	return &failure{p, text}
}

func (d *Dashboard) notFoundView(_ context.Context, p *page, _ *http.Request) (view, error) {
	return nil, &weir.Error{Kind: weir.NotFound, Op: "dashboard",
		Message: "There is no page at this address."}
}

// templates returns the template of each page. The first call parses the templates. Parsing takes 5
// ms, and at the start of the process it would delay each cold start.
var templates = sync.OnceValue(func() map[string]*template.Template {
	return parseTemplates("overview", "search", "story", "errors", "cluster", "replays", "job",
		"batches", "batch", "schedules", "schedule", "pauses", "audit", "failed")
})

// parseTemplates returns the template of each page. A template consists of the layout, the shared
// parts and the page's own part.
func parseTemplates(names ...string) map[string]*template.Template {
	base := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles,
		"templates/layout.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	for _, name := range names {
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles,
			"templates/"+name+".html"))
	}

	return all
}
