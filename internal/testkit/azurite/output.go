package azurite

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
)

// The emulator prints these lines at the start of each service. The second line has the port, which
// the emulator has chosen if the caller asked for a free one.
var (
	startingLine  = regexp.MustCompile(`^Azurite (Blob|Queue|Table) service is starting at (\S+)`)
	listeningLine = regexp.MustCompile(`^Azurite (Blob|Queue|Table) service is successfully listening at ` +
		`https?://127\.0\.0\.1:(\d+)`)
)

const keptOutput = 4 << 10 // bytes of the output that an error can have

// outputReader reads the child's output line by line.
type outputReader struct {
	log   io.Writer
	ready chan Ports // receives once, when all services listen

	mu       sync.Mutex
	line     []byte // the last line, if it has not ended yet
	tail     []byte // the end of the output, for an error
	ports    Ports  // ports of the services that listen; 0 = the service does not listen yet
	starting string // the address of the service that started last
}

func newOutput(log io.Writer) *outputReader {
	if log == nil {
		log = io.Discard
	}
	return &outputReader{log: log, ready: make(chan Ports, 1)}
}

// Write implements io.Writer. It never fails, so that the emulator goes on even if the log fails.
func (o *outputReader) Write(b []byte) (int, error) {
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
		o.readLine(string(line))
		o.line = rest
	}
}

func (o *outputReader) readLine(line string) {
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
		o.ports = Ports{} // so that the ports are sent only once
	}
}

// startFailure returns the reason for which the child ended before its services listened; err is the child's result.
func (o *outputReader) startFailure(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(o.tail, []byte("EADDRINUSE")) {
		return fmt.Errorf("port taken: %s", o.starting)
	}
	return fmt.Errorf("ended at once (%v): %s", err, bytes.TrimSpace(o.tail))
}
