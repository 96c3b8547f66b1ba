package app

import (
	"context"
	"encoding/json"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"weir/internal/audit"
	"weir/internal/storage"
)

func (a *App) newAuditLog(table storage.Table) *audit.Log {
	return &audit.Log{Table: table, Keep: time.Duration(a.settings.AuditRetention), Now: time.Now,
		Logger: a.log}
}

// The list "changing" names the functions whose changes are recorded in the audit log.
// functions/receive and functions/batches are not in the list, because storage already keeps each
// message and each batch.
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
	return audit.Wrapper{Log: r.audit, SignIn: r.signIn, Proofs: r.proofs, Pace: audit.NewPace()}
}

// openPathsVariable is the setting with the paths that need no sign-in, separated by spaces. The
// template sets it. Without it, the paths are those of the template's default.
const openPathsVariable = "WEIR_SIGN_IN_OPEN_PATHS"

// readSignIn reads whether the platform requires sign-in, and on which paths it does not.
func readSignIn(env func(string) string) audit.SignIn {
	s := audit.SignIn{IsRequired: strings.EqualFold(env("WEBSITE_AUTH_ENABLED"), "true"),
		OpenPaths: strings.Fields(env(openPathsVariable))}
	if len(s.OpenPaths) == 0 {
		s.OpenPaths = audit.DefaultOpenPaths
	}
	return s
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
