package view

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/audit"
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
	Logger *slog.Logger
}

// auditEntry is the JSON form of an entry.
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
}

// Bounds of the parameter limit.
const defaultAuditLimit, maxAuditLimit = 50, 500

// ServeHTTP implements http.Handler.
func (f *Audit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := readAuditQuery(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	page, err := f.Reader.Read(r.Context(), q)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	entries := []auditEntry{}
	for _, e := range page.Entries {
		detail := json.RawMessage(e.Detail)
		if !json.Valid(detail) {
			detail = nil
		}
		entries = append(entries, auditEntry{e.At, e.Action, e.Subject, detail, e.Function, e.Status, e.Principal,
			e.KeyID, e.From, e.Invocation})
	}
	httpio.WriteJSON(w, http.StatusOK, struct {
		Entries  []auditEntry `json:"entries"`
		Continue string       `json:"continue,omitempty"`
	}{entries, page.Continue})
}

func readAuditQuery(r *http.Request) (audit.Query, error) {
	q := r.URL.Query()
	out := audit.Query{Action: q.Get("action"), Subject: q.Get("subject"), Continue: q.Get("continue"),
		Limit: defaultAuditLimit}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxAuditLimit {
			return out, &weir.Error{Kind: weir.Malformed, Op: "audit", Message: "limit is a number from 1 to 500"}
		}
		out.Limit = n
	}
	if len(out.Continue) > 64 {
		return out, &weir.Error{Kind: weir.Malformed, Op: "audit", Message: "continue is not one that was answered"}
	}
	return out, nil
}
