package app

import (
	"context"
	"encoding/json"
	"os"
	"os/user"
	"slices"
	"time"

	"weir/internal/audit"
	"weir/internal/storage"
)

func (a *App) newAuditLog(table storage.Table) *audit.Log {
	return &audit.Log{Table: table, Keep: time.Duration(a.settings.AuditRetention), Now: time.Now, Logger: a.log}
}

// The list "changing" names the functions whose changes are recorded in the audit log. functions/receive and
// functions/batches are not in the list, because storage already keeps each message and each batch.
var changing = []string{"cancel", "move", "write", "schedules"}

func (r *running) auditChanges(table []route) []route {
	wrapper := r.newAuditWrapper()
	for i := range table {
		if slices.Contains(changing, table[i].function) {
			table[i].handler = wrapper.Wrap(table[i].function, table[i].handler)
		}
	}
	return table
}

func (r *running) newAuditWrapper() audit.Wrapper {
	return audit.Wrapper{Log: r.audit, HasSignIn: r.hasSignIn}
}

// RecordCommand writes an entry of the audit log about a change that a command makes in storage.
func (a *App) RecordCommand(ctx context.Context, action string, detail map[string]any) {
	e := audit.Entry{Action: action, Function: "command"}
	if text, err := json.Marshal(detail); err == nil {
		e.Detail = string(text)
	}
	if u, err := user.Current(); err == nil {
		e.Principal = u.Username
	}
	e.From, _ = os.Hostname() // "" if the machine has no name
	a.newAuditLog(a.account.Table()).Record(ctx, e)
}
