package export

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/httpio"
)

// MaxLines is the largest and the default number of lines of an export.
const MaxLines = 10_000

const (
	// pageLines is the largest number of lines that are in memory at the same time.
	pageLines = 200
	// maxTime is the time after which an export reads no further page. It is shorter than the
	// timeouts of clients: a client still gets the page whose read began before maxTime was over.
	maxTime = 15 * time.Second
)

// Format is the format of an export.
type Format string

// The formats of an export.
const (
	CSV  Format = "csv"
	JSON Format = "json"
)

// ParseFormat returns the format that a request asks for. The parameter format is csv or json; any
// other value is an error. Without the parameter the format is CSV if the header Accept has
// text/csv. Otherwise it is "": the request does not ask for a file.
func ParseFormat(r *http.Request) (Format, error) {
	switch f := Format(r.URL.Query().Get("format")); f {
	case CSV, JSON:
		return f, nil
	case "":
	default:
		return "", errors.New("must be csv or json")
	}

	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == "text/csv" {
			return CSV, nil
		}
	}

	return "", nil
}

// Page is a page of a list.
type Page[T any] struct {
	Lines []T
	Next  string // token of the next page; "" = this is the last page of the list
	End   any    // its JSON fields follow the lines, if this is the export's last page
}

// List is a list that is written as a file, page by page. All fields are required.
type List[T any] struct {
	File      string // name of the file, without the prefix "weir-" and the extension
	Name      string // name of the JSON field that has the lines
	Columns   []string
	NewRecord func(T) []string // one cell for each column
	// ReadPage reads at most limit lines of the page that token names; "" = the first page. A list
	// of a single page ignores the token.
	ReadPage func(ctx context.Context, limit int, token string) (Page[T], error)
	Now      func() time.Time
	Log      *slog.Logger
}

// WriteIfAsked answers with an export of at most MaxLines lines, if the request asks for a file. It
// reports whether the request asked. If ParseFormat returns an error, WriteIfAsked returns the
// error and does not answer.
func (x *List[T]) WriteIfAsked(w http.ResponseWriter, r *http.Request) (isAsked bool, err error) {
	f, err := ParseFormat(r)
	if err != nil || f == "" {
		return false, err
	}
	x.Write(w, r, f, MaxLines, "")
	return true, nil
}

// Write answers with an export of at most limit lines, from the page that token names; "" = the
// first page. It reads no further page after 15 s.
//
// If the first page cannot be read, Write answers with an error. If a later page cannot be read,
// Write panics with http.ErrAbortHandler. The server then cuts off the connection, so that the
// client does not take the file for complete.
func (x *List[T]) Write(w http.ResponseWriter, r *http.Request, f Format, limit int, token string) {
	began := x.Now()
	p, err := x.ReadPage(r.Context(), min(limit, pageLines), token)
	if err != nil {
		httpio.WriteError(w, r, x.Log, err)
		return
	}

	out := newLineWriter(w, x, f)
	for {
		for _, line := range p.Lines {
			out.writeLine(line)
		}

		limit -= len(p.Lines)
		if limit <= 0 || p.Next == "" || x.Now().Sub(began) > maxTime {
			out.writeEnd(p)
			return
		}

		out.flushLines()

		if p, err = x.ReadPage(r.Context(), min(limit, pageLines), p.Next); err != nil {
			x.Log.Warn("export: cut off", "invocation_id", httpio.InvocationID(r), "err", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// lineWriter writes the lines of an export. It ignores errors of writes: if the client is gone, the
// request's context has ended, and the next read of storage fails.
type lineWriter[T any] struct {
	*List[T]
	out   http.ResponseWriter
	csv   *csv.Writer // nil = JSON
	lines int         // number of lines that were written
}

func newLineWriter[T any](w http.ResponseWriter, x *List[T], f Format) *lineWriter[T] {
	contentType := "application/json"
	if f == CSV {
		contentType = "text/csv; charset=utf-8"
	}

	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="weir-%s.%s"`, x.File, f))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	out := &lineWriter[T]{List: x, out: w}
	if f == CSV {
		out.csv = csv.NewWriter(w)
		out.csv.UseCRLF = true // as RFC 4180 wants
		out.csv.Write(x.Columns)
		return out
	}

	fmt.Fprintf(w, "{%q:[", x.Name)

	return out
}

func (o *lineWriter[T]) writeLine(line T) {
	if o.lines++; o.csv != nil {
		o.csv.Write(guardCells(o.NewRecord(line)))
		return
	}

	if o.lines > 1 {
		o.out.Write([]byte(","))
	}

	o.out.Write(encodeJSON(line))
}

func (o *lineWriter[T]) flushLines() {
	if o.csv != nil {
		o.csv.Flush()
	}
	http.NewResponseController(o.out).Flush()
}

// writeEnd writes the end of the file. An incomplete CSV file ends with a note, because CSV has no
// field for the token of the next page.
func (o *lineWriter[T]) writeEnd(p Page[T]) {
	if o.csv == nil {
		rest := encodeJSON(p.End) // a JSON object
		o.out.Write([]byte("]"))
		if len(rest) > len("{}") {
			o.out.Write([]byte(","))
		}
		o.out.Write(append(rest[1:], '\n'))
	} else if p.Next != "" {
		o.csv.Write([]string{fmt.Sprintf("(not complete: the export ended after %d lines; narrow the search)",
			o.lines)})
	}

	o.flushLines()
}

func encodeJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode the answer: %w", err)) // a defect of Weir
	}
	return data
}

// guardCells puts an apostrophe before each cell that a spreadsheet would run as a formula. Some
// cells have texts of upstreams, which could otherwise run formulas in an operator's spreadsheet.
func guardCells(cells []string) []string {
	for i, cell := range cells {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			cells[i] = "'" + cell
		}
	}
	return cells
}

// FormatTime returns a time as text for a cell; "" for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// FormatNumber returns a number as text for a cell; "" for 0.
func FormatNumber(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
