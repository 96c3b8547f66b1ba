package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
)

// The baseline for due times is a process with one timer for each due time. At each due time, the
// process posts to a CMS that no other process uses. So only the machine causes the lateness of
// these posts. The bench starts its own program again as this process, and passes the due times on
// standard input.

// timersURL names the environment variable with the address of the baseline's CMS. If the variable
// is set, this process is the baseline.
const timersURL = "WEIR_BENCH_TIMERS"

// runTimerProcess reads due times from "in" and posts at these times, if this process is the
// baseline. It reports whether this process is the baseline.
func runTimerProcess(ctx context.Context, in io.Reader) (bool, error) {
	url := os.Getenv(timersURL)
	if url == "" {
		return false, nil
	}

	var moments map[string]time.Time
	if err := json.NewDecoder(in).Decode(&moments); err != nil {
		return true, err
	}

	client := newClient()
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	for path, due := range moments {
		group.Go(func() error {
			sleepFor(ctx, time.Until(due))
			return postMessage(ctx, client, url, message{path, 1})
		})
	}

	return true, group.Wait()
}

// timerYardstick is the running baseline process, and the CMS to which the process posts.
type timerYardstick struct {
	cms  *democms.Server
	site *http.Server
	cmd  *exec.Cmd
}

// startTimers starts the baseline for the due times in the map "a". All messages in the map must
// have version 1, because the baseline posts version 1.
func startTimers(ctx context.Context, a dueTimes) (*timerYardstick, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	moments := map[string]time.Time{}
	for m, due := range a {
		moments[m.path] = due
	}

	text, err := json.Marshal(moments)
	if err != nil {
		return nil, err
	}

	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	t := &timerYardstick{cms: democms.New(dueLatency, 0), cmd: exec.CommandContext(ctx, self)}
	t.site = &http.Server{Handler: t.cms, ReadHeaderTimeout: time.Minute}
	go t.site.Serve(socket) // returns when awaitLateness closes t.site
	t.cmd.Env = append(os.Environ(), timersURL+"=http://"+socket.Addr().String()+"/api/content")
	t.cmd.Stdin, t.cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, t.site.Close())
	}

	return t, nil
}

// awaitLateness waits until the baseline process has ended, and returns the lateness of its posts,
// in ms.
func (t *timerYardstick) awaitLateness(a dueTimes) ([]float64, error) {
	err := t.cmd.Wait()
	late, early := measureLateness(t.cms, a, time.Time{})
	if err := errors.Join(err, early, t.site.Close()); err != nil {
		return nil, fmt.Errorf("bare timers: %w", err)
	}
	return late, nil
}
