package azurite

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
)

// The emulator tells on stdout what it is about to do and what it has done; with a free
// port asked for, this is also where the port is told.
var (
	startingLine  = regexp.MustCompile(`^Azurite (Blob|Queue|Table) service is starting at (\S+)`)
	listeningLine = regexp.MustCompile(`^Azurite (Blob|Queue|Table) service is successfully listening at https?://127\.0\.0\.1:(\d+)`)
)

const keptOutput = 4 << 10

// output reads what the child prints, line by line.
type output struct {
	log   io.Writer
	ready chan Ports // receives once

	mu       sync.Mutex
	line     []byte // not ended yet
	tail     []byte // the last of it all, for an error
	ports    Ports
	starting string // the address tried last
}

func newOutput(log io.Writer) *output {
	if log == nil {
		log = io.Discard
	}
	return &output{log: log, ready: make(chan Ports, 1)}
}

// Write never fails: the emulator must not stop because a log does.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.log.Write(b)
	o.tail = append(o.tail, b...)
	o.tail = o.tail[max(0, len(o.tail)-keptOutput):]
	o.line = append(o.line, b...)
	for {
		line, rest, found := bytes.Cut(o.line, []byte("\n"))
		if !found {
			return len(b), nil
		}
		o.read(string(line))
		o.line = rest
	}
}

func (o *output) read(line string) {
	if m := startingLine.FindStringSubmatch(line); m != nil {
		o.starting = m[2]
	}
	m := listeningLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	port, _ := strconv.Atoi(m[2])
	switch m[1] {
	case "Blob":
		o.ports.Blob = port
	case "Queue":
		o.ports.Queue = port
	case "Table":
		o.ports.Table = port
	}
	if o.ports.Blob > 0 && o.ports.Queue > 0 && o.ports.Table > 0 {
		o.ready <- o.ports
		o.ports = Ports{} // so that it is told once
	}
}

// failure says why the child ended before it listened.
func (o *output) failure(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(o.tail, []byte("EADDRINUSE")) {
		return fmt.Errorf("port taken: %s", o.starting)
	}
	return fmt.Errorf("ended at once (%v): %s", err, bytes.TrimSpace(o.tail))
}
