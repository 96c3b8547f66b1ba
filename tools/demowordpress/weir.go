package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
	"weir/tools/freeport"
	"weir/tools/realcms"
)

const (
	readyTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
	// finalTimeout is the time within which all accepted messages must be final.
	finalTimeout = 5 * time.Minute
	lookInterval = 100 * time.Millisecond
)

// weir is a Functions host with two instances of the app, and storage in memory.
type weir struct {
	url     string
	storage *azurite.Process
	host    *exec.Cmd
	ended   chan struct{}

	mu  sync.Mutex
	ids []string // ids of accepted messages
}

// startWeir starts storage and the app with recipes/wordpress/weir.yaml, and waits until the app is
// ready. The app's environment has the variables in env, too.
func startWeir(ctx context.Context, log io.Writer, env []string) (*weir, error) {
	settings, err := filepath.Abs(filepath.Join("recipes", "wordpress", "weir.yaml"))
	if err != nil {
		return nil, err
	}

	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}

	w := &weir{url: "http://127.0.0.1:" + strconv.Itoa(port), ended: make(chan struct{})}
	if w.storage, err = azurite.Start(ctx, azurite.Options{}); err != nil {
		return nil, err
	}

	w.host = exec.Command(filepath.Join("build", "tools", "funchost"), "--script-root",
		filepath.Join("build", "app"),
		"--port", strconv.Itoa(port), "--instances", "2", "--development")
	w.host.Env = append(os.Environ(),
		append(env, "AzureWebJobsStorage="+w.storage.ConnectionString(),
			"FUNCTIONS_WORKER_RUNTIME=custom", "WEIR_PREFIX=weir", "WEIR_CONFIG="+settings)...)
	w.host.Stdout, w.host.Stderr = log, log

	// With its own process group the host does not get Ctrl-C from the terminal. So this process
	// can stop the host gracefully.
	w.host.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := w.host.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the host: %w", err), w.storage.Stop())
	}

	go func() { _ = w.host.Wait(); close(w.ended) }()

	if err := w.awaitReady(ctx); err != nil {
		w.stop()
		return nil, err
	}

	return w, nil
}

func (w *weir) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	for {
		resp, err := sendRequest(ctx, http.MethodGet, w.url+"/api/health", "")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("the host is not ready: see %s", logPath)
		case <-w.ended:
			return fmt.Errorf("the host ended before it was ready: see %s", logPath)
		case <-time.After(lookInterval):
		}
	}
}

// stop stops the host gracefully, and then stops storage.
func (w *weir) stop() {
	_ = w.host.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.ended:
	case <-time.After(stopTimeout):
		_ = syscall.Kill(-w.host.Process.Pid, syscall.SIGKILL)
		<-w.ended
	}

	_ = w.storage.Stop()
}

func sendRequest(ctx context.Context, method, address, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/xml")
	return http.DefaultClient.Do(req)
}

func (w *weir) postVersion(ctx context.Context, slug string, version int) error {
	resp, err := sendRequest(ctx, http.MethodPost, w.url+"/api/messages",
		realcms.ArticleOf(slug, version))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var accepted struct{ ID, Detail string }
	if err := json.NewDecoder(resp.Body).Decode(&accepted); err != nil {
		return err
	}

	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("post to Weir: %s: %s", resp.Status, accepted.Detail)
	}

	w.mu.Lock()
	w.ids = append(w.ids, accepted.ID)
	w.mu.Unlock()

	return nil
}

// awaitFinal waits until each accepted message is delivered or superseded. If a message is dead,
// awaitFinal returns an error.
func (w *weir) awaitFinal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, finalTimeout)
	defer cancel()

	for _, id := range w.ids {
		for {
			stage, err := w.readStage(ctx, id)
			switch {
			case err != nil:
				return err
			case stage == "dead":
				return fmt.Errorf("the message %s is dead: see %s", id, logPath)
			}

			if stage == "delivered" || stage == "superseded" {
				break
			}

			select {
			case <-ctx.Done():
				return fmt.Errorf("the message %s is still %s: %w", id, stage, ctx.Err())
			case <-time.After(lookInterval):
			}
		}
	}

	return nil
}

func (w *weir) readStage(ctx context.Context, id string) (string, error) {
	resp, err := sendRequest(ctx, http.MethodGet, w.url+"/api/messages/"+id, "")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var status struct{ Stage string }
	return status.Stage, json.NewDecoder(resp.Body).Decode(&status)
}
