package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	// coldLimit bounds the time from exec to the first 202, in milliseconds, if storage answers
	// within coldDelay.
	coldLimit = 150
	coldDelay = 10 * time.Millisecond
	// coldPoll is the pause of the host between two questions whether the handler is ready.
	coldPoll = 25 * time.Millisecond
)

// coldStart is what one start took, by its parts.
type coldStart struct {
	process  time.Duration // from exec to main
	settings time.Duration // from main to listening
	storage  time.Duration // from listening until storage is open
	request  time.Duration // from then on to the 202: the host's question, the post
	total    time.Duration
}

// coldstart measures how long the request that wakes the app waits: the host starts the handler,
// asks it until it is ready, and forwards the request. The host's own start is not counted.
func coldstart(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, lanes := range b.sizes.coldLanes {
		row, err := b.coldStarts(ctx, lanes)
		if err != nil {
			return rows, fmt.Errorf("%d lanes: %w", lanes, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// coldStarts takes the median of some starts over storage that is in use, the first left out:
// it reads the binary from disk.
func (b *bench) coldStarts(ctx context.Context, lanes int) (result, error) {
	r, err := b.newRig(ctx, setup{lanes: lanes, hostless: true})
	if err != nil {
		return result{}, err
	}
	defer r.close()
	config := filepath.Join(r.temp, r.prefix+".yaml")
	if err := os.WriteFile(config, []byte(r.settings()), 0o600); err != nil {
		return result{}, err
	}
	var starts []coldStart
	for i := range b.sizes.coldStarts + 1 {
		s, err := r.startCold(ctx, config, i)
		if err != nil {
			return result{}, err
		}
		if i > 0 {
			starts = append(starts, s)
		}
	}
	part := func(of func(coldStart) time.Duration) float64 {
		var all []float64
		for _, s := range starts {
			all = append(all, ms(of(s)))
		}
		return median(all)
	}
	longest := slices.MaxFunc(starts, func(a, b coldStart) int { return int(a.total - b.total) }).total
	row := measured(fmt.Sprintf("cold start, %d lanes: exec to the first 202", lanes), "ms", part(func(s coldStart) time.Duration { return s.total })).
		noted("%d starts; process %.0f ms, settings %.0f ms, storage %.0f ms, host's question and post %.0f ms; longest %.0f ms", len(starts),
			part(func(s coldStart) time.Duration { return s.process }), part(func(s coldStart) time.Duration { return s.settings }),
			part(func(s coldStart) time.Duration { return s.storage }), part(func(s coldStart) time.Duration { return s.request }), ms(longest))
	if b.delay <= coldDelay {
		row = row.atMost(coldLimit)
	}
	return row, nil
}

// startCold starts a handler as the host does, and ends it as the host does when the first
// message was accepted.
func (r *rig) startCold(ctx context.Context, config string, number int) (s coldStart, err error) {
	port, err := freePort()
	if err != nil {
		return s, err
	}
	app, err := filepath.Abs(r.app)
	if err != nil {
		return s, err
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(app, "handler"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = app, &log, r.log
	cmd.Env = append(os.Environ(), "AzureWebJobsStorage="+r.connection(), "WEIR_PREFIX="+r.prefix, "WEIR_CONFIG="+config, "WEIR_CMS_URL="+r.cmsURL,
		"FUNCTIONS_CUSTOMHANDLER_PORT="+strconv.Itoa(port), "FUNCTIONS_APP_ROOT_PATH="+app)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	err = r.awaitCold(ctx, address)
	if err == nil {
		err = post(ctx, r.client, address+"/api/messages", message{fmt.Sprint("/cold/", number), 1})
	}
	s.total = time.Since(began)
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	r.client.CloseIdleConnections()
	if err != nil {
		return s, fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return s, s.read(began, &log)
}

// awaitCold asks as the host does: a refused connection means that the handler is not there yet,
// any answer that it is.
func (r *rig) awaitCold(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/", nil)
		if err != nil {
			return err
		}
		resp, err := r.client.Do(req)
		if err == nil {
			return resp.Body.Close()
		}
		if !pause(ctx, coldPoll) {
			return fmt.Errorf("the handler is not there: %w", err)
		}
	}
}

// read takes the parts from the handler's own log: durations are since main.
func (s *coldStart) read(began time.Time, log *bytes.Buffer) error {
	found := map[string]time.Duration{}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct {
			Time     time.Time     `json:"time"`
			Message  string        `json:"msg"`
			Duration time.Duration `json:"duration"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		found[line.Message] = line.Duration
		if line.Message == "handler: listening" {
			s.process = line.Time.Sub(began) - line.Duration
		}
	}
	listening, ready := found["handler: listening"], found["handler: ready"]
	if listening == 0 || ready == 0 {
		return fmt.Errorf("the handler's log does not say how its start went: %v", found)
	}
	s.settings, s.storage, s.request = listening, ready-listening, s.total-s.process-ready
	return nil
}

// freePort returns a port on which no process listens at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
