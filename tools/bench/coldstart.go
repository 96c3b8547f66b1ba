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
	// coldLimit is the target for the time from exec to the first 202, in ms. The target applies if
	// the delay of storage's answers is at most coldDelay.
	coldLimit = 150
	coldDelay = 10 * time.Millisecond
	// coldPoll is the host's pause between two requests that test whether the handler is ready.
	coldPoll = 25 * time.Millisecond
)

// coldStart has the duration of one start, in total and by parts.
type coldStart struct {
	process  time.Duration // from exec to main
	settings time.Duration // from main to listening
	storage  time.Duration // from listening until storage is open
	// from the end of the part "storage" to the 202; includes the host's poll and the post
	request time.Duration
	total   time.Duration // from exec to the 202
}

// runColdStart measures how long a request waits if no handler runs. The bench does the host's
// work: it starts the handler, polls until the handler is ready, and forwards the request. So the
// figures do not include the host's own start.
func runColdStart(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, lanes := range b.sizes.cold.lanes {
		row, err := measureColdStarts(ctx, b, lanes)
		if err != nil {
			return rows, fmt.Errorf("%d lanes: %w", lanes, err)
		}
		rows = append(rows, row)
	}

	return rows, nil
}

// measureColdStarts returns the medians of several starts. The first start does not count, because
// it reads the binary from disk and finds no messages in storage.
func measureColdStarts(ctx context.Context, b *bench, lanes int) (result, error) {
	r, err := b.newRig(ctx, rigOptions{lanes: lanes, withoutHost: true})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	config := filepath.Join(r.temp, r.prefix+".yaml")
	if err := os.WriteFile(config, []byte(r.weirYAML()), 0o600); err != nil {
		return result{}, err
	}

	var starts []coldStart
	for i := range b.sizes.cold.starts + 1 {
		s, err := startColdHandler(ctx, r, config, i)
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
			all = append(all, milliseconds(of(s)))
		}
		return median(all)
	}

	longest := slices.MaxFunc(starts, func(a, b coldStart) int { return int(a.total - b.total) }).total
	row := newRow(fmt.Sprintf("cold start, %d lanes: exec to the first 202", lanes), "ms",
		part(func(s coldStart) time.Duration { return s.total })).
		withNote("%d starts; process %.0f ms, settings %.0f ms, storage %.0f ms, host's question and post %.0f ms; "+
			"longest %.0f ms", len(starts),
			part(func(s coldStart) time.Duration { return s.process }),
			part(func(s coldStart) time.Duration { return s.settings }),
			part(func(s coldStart) time.Duration { return s.storage }),
			part(func(s coldStart) time.Duration { return s.request }), milliseconds(longest))

	if b.delay <= coldDelay {
		row = row.limitValue(coldLimit)
	}

	return row, nil
}

// startColdHandler starts a handler as the host does, posts a message as soon as the handler
// answers, and kills the handler.
func startColdHandler(ctx context.Context, r *rig, config string, number int) (s coldStart,
	err error) {
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
	cmd.Env = append(os.Environ(), "AzureWebJobsStorage="+r.storageConnection(),
		"WEIR_PREFIX="+r.prefix, "WEIR_CONFIG="+config, "WEIR_CMS_URL="+r.cmsURL,
		"FUNCTIONS_CUSTOMHANDLER_PORT="+strconv.Itoa(port), "FUNCTIONS_APP_ROOT_PATH="+app)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}

	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	err = awaitColdHandler(ctx, r, address)
	if err == nil {
		err = postMessage(ctx, r.client, address+"/api/messages",
			message{fmt.Sprint("/cold/", number), 1})
	}

	s.total = time.Since(began)
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // the error only says that the process was killed
	r.client.CloseIdleConnections()
	if err != nil {
		return s, fmt.Errorf("%w\n%s", err, log.Bytes())
	}

	return s, s.readParts(began, &log)
}

// awaitColdHandler polls the handler as the host does: any answer means that the handler is ready.
func awaitColdHandler(ctx context.Context, r *rig, address string) error {
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
		if !sleepFor(ctx, coldPoll) {
			return fmt.Errorf("the handler does not answer: %w", err)
		}
	}
}

// readParts reads the parts of the start from the handler's log. The log's durations begin at main.
func (s *coldStart) readParts(began time.Time, log *bytes.Buffer) error {
	found := map[string]time.Duration{}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct {
			Time     time.Time `json:"time"`
			Message  string    `json:"msg"`
			Duration int64     `json:"duration_ms"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}

		sinceMain := time.Duration(line.Duration) * time.Millisecond
		found[line.Message] = sinceMain
		if line.Message == "handler: listening" {
			s.process = line.Time.Sub(began) - sinceMain
		}
	}

	listening, isListening := found["handler: listening"]
	ready, isReady := found["handler: ready"]
	if !isListening || !isReady {
		return fmt.Errorf("the handler's log has no line \"listening\" or no line \"ready\": %v",
			found)
	}

	s.settings, s.storage, s.request = listening, ready-listening, s.total-s.process-ready

	return nil
}

// freePort returns a port on which no process listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
