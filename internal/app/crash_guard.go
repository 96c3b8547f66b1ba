package app

import (
	"net"
	"os"
	"time"

	"weir/internal/inflight"
)

// openHostMarks returns a function that opens the marks of a process that listens on a port. The
// process that started it is the host, or the service manager.
func openHostMarks(port string) func() (*os.File, error) {
	return func() (*os.File, error) {
		return inflight.OpenFile(os.TempDir(), os.Getppid(), port, time.Now())
	}
}

// openServeMarks returns a function that opens the marks of weir serve: those in its folder, or
// those of its port if it has no folder.
func (a *App) openServeMarks(listensOn net.Addr) func() (*os.File, error) {
	if dir := a.settings.Data; dir != "" {
		return func() (*os.File, error) { return inflight.OpenFolderFile(dir) }
	}

	_, port, _ := net.SplitHostPort(listensOn.String()) // the address of a listener has a port

	return openHostMarks(port)
}

// openCrashGuard makes the guard against requests that end the process again and again. Without a
// file for the marks there is no guard, and all requests run: an app without a folder for temporary
// files must not stand still. The caller calls closeMarks after the server has stopped.
func (a *App) openCrashGuard(open func() (*os.File, error)) (closeMarks func()) {
	file, err := open()
	if err != nil {
		a.log.Warn("handler: requests run without a crash guard", "err", err)
		return func() {}
	}

	closeMarks = func() { _ = file.Close() } // all that counts is in the file already

	info, err := file.Stat()
	if err == nil {
		a.crashGuard, err = inflight.NewGuard(file, info.ModTime(), time.Now, a.log)
	}

	if err != nil {
		a.log.Warn("handler: requests run without a crash guard", "err", err)
	}

	return closeMarks
}
