package app

import (
	"log/slog"
	"os"
	"time"

	"weir/internal/inflight"
	"weir/internal/settings"
)

// openCrashGuard returns the guard against requests that end the process again and again. The
// process must already listen on the host's port. Without a file for the marks there is no guard,
// and all requests run: an app without a folder for temporary files must not stand still.
func openCrashGuard(env func(string) string, log *slog.Logger) (guard *inflight.Guard,
	closeMarks func()) {
	file, err := inflight.OpenFile(os.TempDir(), os.Getppid(), env(settings.HostPortVariable), time.Now())
	if err != nil {
		log.Warn("handler: requests run without a crash guard", "err", err)
		return nil, func() {}
	}

	closeMarks = func() { _ = file.Close() } // all that counts is in the file already

	guard, err = inflight.NewGuard(file, time.Now, log)
	if err != nil {
		log.Warn("handler: requests run without a crash guard", "err", err)
	}

	return guard, closeMarks
}
