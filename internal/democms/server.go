// Package democms is the demo CMS. For each write the CMS looks up the item with the write's path,
// waits, and then creates or updates the item. Writes of one path can overlap and then create
// duplicates, as in the CMSs for which Weir was made. The CMS counts overlaps, duplicates, repeats
// and writes out of order (see Stats). Callers can make the CMS fail (see Faults).
package democms

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"weir/internal/contract"
)

// contentItem is an item of content. Weir must prevent a second item with the same path.
type contentItem struct {
	Path, Version, Title string
	Updated              time.Time
}

// Request is one write that the CMS received, successful or not.
type Request struct {
	ID      string `json:"id"` // value of Idempotency-Key; "" if the header is missing
	Path    string `json:"path"`
	Version int    `json:"version"`
	Fence   int64  `json:"fence"`
	Attempt int    `json:"attempt"`
	// value of Weir-Sequence; if missing, the write's number, counted from 1
	Order     int64     `json:"order"`
	Trace     string    `json:"trace"` // value of traceparent
	State     string    `json:"state"` // value of tracestate
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt"`
	Status    int       `json:"status"` // status of the answer; -1 if there was no answer
}

// Server is a demo CMS. Safe for concurrent use.
type Server struct {
	latency, jitter time.Duration
	mux             *http.ServeMux

	mu           sync.Mutex
	items        []*contentItem
	requests     []Request
	running      map[string]int // writes in progress, by path
	inFlight     int
	stats        Stats
	latest       map[string]int   // highest version written, by path
	newest       map[string]int64 // highest order written, by path
	arrivals     int64            // writes that have begun since the start
	ids          map[string]bool  // Idempotency-Keys of successful writes
	faults       Faults
	requestCount int // writes since the start, for Faults.FailEvery
}

// Stats has the counts since the start or the last Reset.
type Stats struct {
	Items  int `json:"items"`
	Writes int `json:"writes"` // successful writes
	// writes that got a status of 400 or more, or no answer
	Failures   int `json:"failures"`
	Duplicates int `json:"duplicates"` // items with the same path as an earlier item
	// writes that began while another write of the same path ran
	Overlaps      int `json:"overlaps"`
	MaxConcurrent int `json:"maxConcurrent"` // largest number of writes at one time, over all paths
	// successful writes with a lower Version than the path had before
	Inversions int `json:"inversions"`
	// successful writes with a lower Order than the path had before
	Overtaken int `json:"overtaken"`
	// successful writes with the Idempotency-Key of an earlier such write
	Repeats int `json:"repeats"`
}

// New returns an empty CMS. Between the look-up of an item and the write, the CMS waits for latency
// plus a random time below jitter.
func New(latency, jitter time.Duration) *Server {
	s := &Server{latency: latency, jitter: jitter, mux: http.NewServeMux()}
	s.Reset()
	s.mux.HandleFunc("POST /api/content", s.handleWrite)
	s.mux.HandleFunc("GET /stats", s.showStats)
	s.mux.HandleFunc("GET /requests", s.showRequests)
	s.mux.HandleFunc("POST /faults", s.setFaults)
	s.mux.HandleFunc("DELETE /faults", s.clearFaults)
	s.mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) { s.Reset() })
	s.mux.HandleFunc("GET /{$}", s.showPage)

	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Reset removes all items and clears the record of writes. It does not change the faults.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.requests, s.stats = nil, nil, Stats{}
	s.running, s.latest, s.ids = map[string]int{}, map[string]int{}, map[string]bool{}
	s.newest = map[string]int64{}
}

// maxBody is the largest body that the CMS accepts.
const maxBody = 8 << 20

// writeBody has the parts of a body that the CMS reads. The root element can have any name.
type writeBody struct {
	PathAttr    string `xml:"path,attr"`
	VersionAttr string `xml:"version,attr"`
	Path        string `xml:"path"`
	Version     string `xml:"version"`
	Title       string `xml:"title"`
}

// handleWrite finishes a write even if the client disconnects, as many real CMSs do. This is the
// reason for Weir's settle time.
func (s *Server) handleWrite(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body broke off", http.StatusBadRequest)
		return
	}

	var c writeBody

	// The CMS reads each encoding that Weir accepts. Otherwise the first message in Latin-1 would
	// be dead.
	text, err := contract.Text(cmp.Or(r.Header.Get("Content-Type"), "application/xml"), body)
	if err == nil {
		err = xml.Unmarshal([]byte(text), &c)
	}

	if err != nil {
		http.Error(w, "this is not XML: "+err.Error(), http.StatusBadRequest)
		return
	}

	// a message without a version has version 0
	version, _ := strconv.Atoi(firstNonEmpty(c.VersionAttr, c.Version))
	req := Request{ID: r.Header.Get("Idempotency-Key"), Path: findPath(c, r.Header),
		Version: version,
		Trace:   r.Header.Get("Traceparent"), State: r.Header.Get("Tracestate"),
		StartedAt: time.Now()}

	req.Fence, _ = strconv.ParseInt(r.Header.Get("Weir-Fence"), 10, 64)
	req.Attempt, _ = strconv.Atoi(r.Header.Get("Weir-Attempt"))
	sequence, err := strconv.ParseInt(r.Header.Get("Weir-Sequence"), 10, 64)
	arrival := s.recordBegin(req.Path)
	if req.Order = sequence; err != nil {
		req.Order = arrival
	}

	status, words := s.applyFaults(w, r, req.Path, []byte(text))
	if status == 0 {
		status, words = s.storeItem(req, c.Title)
	}

	req.Status, req.EndedAt = status, time.Now()
	s.recordEnd(req)
	if status == aborted {
		panic(http.ErrAbortHandler)
	}

	w.WriteHeader(status)
	fmt.Fprintln(w, words)
}

// findPath returns the path in the message. If the message has no path, findPath returns the
// ordering key, so that the CMS accepts messages of every contract.
func findPath(c writeBody, header http.Header) string {
	key, err := url.PathUnescape(header.Get("Weir-Key"))
	if err != nil {
		key = header.Get("Weir-Key")
	}
	return firstNonEmpty(firstNonEmpty(c.PathAttr, c.Path), key)
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// storeItem does not hold the lock while it waits. So concurrent writes of one path can create
// duplicates, as in a real CMS.
func (s *Server) storeItem(req Request, title string) (int, string) {
	if req.Path == "" {
		return http.StatusBadRequest, "path is missing"
	}

	s.mu.Lock()
	var found *contentItem
	for _, it := range s.items {
		if it.Path == req.Path {
			found = it
			break
		}
	}

	s.mu.Unlock()
	wait := s.latency
	if s.jitter > 0 {
		wait += rand.N(s.jitter)
	}

	time.Sleep(wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	written := contentItem{req.Path, strconv.Itoa(req.Version), title, time.Now()}
	if found != nil {
		*found = written
		return http.StatusOK, "updated"
	}

	s.items = append(s.items, &written)

	return http.StatusCreated, "created"
}

// recordBegin records that a write begins. arrival is the number of writes that have begun since
// the start.
func (s *Server) recordBegin(path string) (arrival int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals++
	if s.running[path]++; s.running[path] > 1 {
		s.stats.Overlaps++
	}

	s.inFlight++
	s.stats.MaxConcurrent = max(s.stats.MaxConcurrent, s.inFlight)

	return s.arrivals
}

func (s *Server) recordEnd(req Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if s.running[req.Path]--; s.running[req.Path] == 0 {
		delete(s.running, req.Path)
	}

	s.requests = append(s.requests, req)
	if req.Status >= http.StatusBadRequest || req.Status == aborted {
		s.stats.Failures++
		return
	}

	s.stats.Writes++
	if req.Version < s.latest[req.Path] {
		s.stats.Inversions++
	}

	s.latest[req.Path] = max(s.latest[req.Path], req.Version)
	if req.Order < s.newest[req.Path] {
		s.stats.Overtaken++
	}

	s.newest[req.Path] = max(s.newest[req.Path], req.Order)
	if req.ID != "" && s.ids[req.ID] {
		s.stats.Repeats++
	}

	s.ids[req.ID] = true
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, paths := s.stats, map[string]bool{}
	st.Items = len(s.items)
	for _, it := range s.items {
		if paths[it.Path] {
			st.Duplicates++
		}
		paths[it.Path] = true
	}

	return st
}

func (s *Server) showStats(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Stats()) }

// Requests returns all writes so far, in the order in which they ended.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

func (s *Server) showRequests(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Requests()) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}

var pageTemplate = template.Must(template.New("").Parse(
	`<!doctype html><html lang="en"><meta charset="utf-8"><title>Demo CMS</title>
<meta name="viewport" content="width=device-width"><style>
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}
dl{display:flex;flex-wrap:wrap;gap:.5rem 2rem}dt{opacity:.7}dd{margin:0;font-weight:600}div{min-width:6rem}</style>
<h1>Demo CMS</h1><dl>{{with .Stats}}<div><dt>items</dt><dd>{{.Items}}</dd></div>
<div><dt>writes</dt><dd>{{.Writes}}</dd></div>
<div><dt>duplicates</dt><dd>{{.Duplicates}}</dd></div><div><dt>overlaps</dt><dd>{{.Overlaps}}</dd></div>
<div><dt>overtaken</dt><dd>{{.Overtaken}}</dd></div>
<div><dt>repeats</dt><dd>{{.Repeats}}</dd></div>
<div><dt>failures</dt><dd>{{.Failures}}</dd></div>{{end}}</dl>
<table><thead><tr><th>path<th>version<th>title<th>updated</thead>
{{range .Items}}<tr><td>{{.Path}}<td>{{.Version}}<td>{{.Title}}
<td>{{.Updated.Format "15:04:05.000"}}{{else}}<tr><td colspan="4">Nothing has been written yet.{{end}}</table>
<h2>Faults</h2><p>The CMS can fail on purpose: <code>curl -X POST {{.Address}}/faults -d '{"down": true}'</code>;
<code>curl -X DELETE {{.Address}}/faults</code> ends that. In force: <code>{{.Faults}}</code></p>
<table><thead><tr><th>fault<th>effect</thead>{{range .Known}}<tr><td><code>{{index . 0}}</code><td>{{index . 1}}{{end}}
</table></html>`))

// KnownFaults has two texts for each fault: an example in JSON, and its effect.
var KnownFaults = [][2]string{
	{`"down": true`, "503 for all: Weir pauses the lane"},
	{`"drop": true`, "closes the connection without an answer"},
	{`"hang": true`, "does not answer until the fault ends"},
	{`"slow": "2s"`, "answers so much later"},
	{`"tooMany": "30s"`, "429 with this Retry-After"},
	{`"failEvery": 3`, "500 for every third request"},
	{`"failPath": "/news/1"`, "500 for this path"},
	{`"failFirst": "/news/"`, "500 for first attempts at paths that begin so"},
	{`"failUnder": "/news/"`, "500 for paths that begin so"},
	{`"refuseUnder": "/news/"`, "403 for paths that begin so"},
	{`"rejectText": "Hello"`, "400 for bodies with this text: the message is dead"},
}

func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	stats := s.Stats()
	s.mu.Lock()

	// cannot fail, because Faults has only strings, numbers and bools
	faults, _ := json.Marshal(s.faults)
	items := make([]contentItem, 0, len(s.items))
	for _, it := range s.items {
		items = append(items, *it)
	}

	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	pageTemplate.Execute(w, map[string]any{"Stats": stats, "Items": items,
		"Address": "http://" + r.Host,
		// an error means that the client has disconnected
		"Faults": string(faults), "Known": KnownFaults})
}
