package view

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/audit"
	"weir/internal/export"
	"weir/internal/httpio"
	"weir/internal/weir"
)

// AuditReader reads the audit log.
type AuditReader interface {
	Read(ctx context.Context, q audit.Query) (audit.Page, error)
}

// Audit serves GET /api/audit. All fields are needed.
type Audit struct {
	Reader AuditReader
	Now    func() time.Time
	Logger *slog.Logger
}

// auditEntry is the JSON form of an audit.Entry.
type auditEntry struct {
	At         time.Time       `json:"at"`
	Action     string          `json:"action"`
	Subject    string          `json:"subject,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	Function   string          `json:"function"`
	Status     int             `json:"status,omitempty"`
	Principal  string          `json:"principal,omitempty"`
	KeyID      string          `json:"keyId,omitempty"`
	From       string          `json:"from,omitempty"`
	Invocation string          `json:"invocationId,omitempty"`
	RedactedAt time.Time       `json:"redactedAt,omitzero"`
	RedactedBy []string        `json:"redactedBy,omitempty"` // ids of the erased messages
}

// The default and the upper bound of the parameter "limit". An export has export.MaxLines for both.
const defaultAuditLimit, maxAuditLimit = 50, 500

// ServeHTTP implements http.Handler.
func (f *Audit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, form, err := readAuditQuery(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	if form != "" {
		f.newExport(q).Write(w, r, form, q.Limit, q.Continue)
		return
	}

	page, err := f.Reader.Read(r.Context(), q)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK, struct {
		Entries  []auditEntry `json:"entries"`
		Continue string       `json:"continue,omitempty"`
	}{describeEntries(page), page.Continue})
}

func (f *Audit) newExport(q audit.Query) *export.List[auditEntry] {
	return &export.List[auditEntry]{File: "audit", Name: "entries", Now: f.Now, Log: f.Logger,
		Columns: []string{"at", "action", "subject", "detail", "function", "status", "principal",
			"keyId", "from", "invocationId", "redactedAt", "redactedBy"},
		NewRecord: func(e auditEntry) []string {
			return []string{export.FormatTime(e.At), e.Action, e.Subject, string(e.Detail),
				e.Function,
				export.FormatNumber(e.Status), e.Principal, e.KeyID, e.From, e.Invocation,
				export.FormatTime(e.RedactedAt), strings.Join(e.RedactedBy, " ")}
		},
		ReadPage: func(ctx context.Context, limit int, token string) (export.Page[auditEntry],
			error) {
			q.Limit, q.Continue = limit, token
			page, err := f.Reader.Read(ctx, q)
			return export.Page[auditEntry]{Lines: describeEntries(page), Next: page.Continue,
				End: struct {
					Continue string `json:"continue,omitempty"`
				}{page.Continue}}, err
		}}
}

func describeEntries(page audit.Page) []auditEntry {
	entries := []auditEntry{}
	for _, e := range page.Entries {
		detail := json.RawMessage(e.Detail)
		if !json.Valid(detail) {
			detail = nil
		}

		entries = append(entries,
			auditEntry{e.At, e.Action, e.Subject, detail, e.Function, e.Status, e.Principal,
				e.KeyID, e.From, e.Invocation, e.RedactedAt, strings.Fields(e.RedactedBy)})
	}

	return entries
}

func readAuditQuery(r *http.Request) (audit.Query, export.Format, error) {
	q := r.URL.Query()
	out := audit.Query{Action: q.Get("action"), Subject: q.Get("subject"),
		Continue: q.Get("continue"), Limit: defaultAuditLimit}
	form, err := export.ParseFormat(r)
	if err != nil {
		return out, "", &weir.Error{Kind: weir.Malformed, Op: "audit",
			Message: "format " + err.Error()}
	}

	most := maxAuditLimit
	if form != "" {
		out.Limit, most = export.MaxLines, export.MaxLines
	}

	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return out, "", &weir.Error{Kind: weir.Malformed, Op: "audit",
				Message: fmt.Sprintf("limit is a number from 1 to %d", most)}
		}
		out.Limit = n
	}

	if len(out.Continue) > 64 {
		return out, "", &weir.Error{Kind: weir.Malformed, Op: "audit",
			Message: "continue is not from an earlier answer"}
	}

	return out, form, nil
}
