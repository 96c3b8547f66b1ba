package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
	"weir/tools/freeport"
)

const (
	// lanes is the number of Weir's lanes, and so the largest number of its concurrent writes to
	// the CMS.
	lanes        = 4
	readyTimeout = 90 * time.Second
	lookInterval = 100 * time.Millisecond
)

// weir is a Functions host with one instance of the app, and storage in memory.
type weir struct {
	demo    *demo
	storage *azurite.Process
	host    *exec.Cmd
	env     []string
}

// startWeir starts Weir with settings for the consumer's queue, and waits until Weir is healthy.
func (c *consumer) startWeir(ctx context.Context) (*weir, error) {
	d := c.demo
	settings := filepath.Join(d.dir, "weir.yaml")
	text := fmt.Sprintf("lanes: %d\nlog: { level: warn }\ndelivery: { url: %q }\n"+
		"contracts: [{ name: article, root: article, key: ./@path, version: ./@version }]\n"+
		"intake: { rabbitmq: { url: %q, queues: [{ name: %q }] } }\n", lanes, c.cmsURL,
		d.broker.URL(), c.queueName())
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		return nil, err
	}

	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}

	w := &weir{demo: d}
	if w.storage, err = azurite.Start(ctx, azurite.Options{}); err != nil {
		return nil, err
	}

	w.env = []string{"AzureWebJobsStorage=" + w.storage.ConnectionString(), "WEIR_PREFIX=weir",
		"WEIR_CONFIG=" + settings, "FUNCTIONS_WORKER_RUNTIME=custom"}
	w.host, err = d.startProgram(filepath.Join("build", "tools", "funchost"), w.env,
		"--script-root",
		filepath.Join("build", "app"), "--port", strconv.Itoa(port), "--instances", "1",
		"--development")
	if err != nil {
		return nil, errors.Join(err, w.storage.Stop())
	}

	if err := awaitHealth(ctx, fmt.Sprintf("http://127.0.0.1:%d/api/health", port)); err != nil {
		w.stop()
		return nil, err
	}

	return w, nil
}

func (w *weir) startConsumer() (*exec.Cmd, error) {
	return w.demo.startProgram(filepath.Join("build", "app", "handler"), w.env, "consume")
}

// stop stops the host gracefully, and then stops storage.
func (w *weir) stop() {
	_ = w.host.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(20*time.Second,
		func() { _ = syscall.Kill(-w.host.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	_ = w.host.Wait() // returns an error if a signal has ended the host
	_ = w.storage.Stop()
}

func awaitHealth(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}

		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}

		if err := sleepUntil(ctx, time.Now().Add(lookInterval)); err != nil {
			return fmt.Errorf("the host is not ready: %w", err)
		}
	}
}
