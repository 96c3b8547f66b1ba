package azurite

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
)

// The emulator prints these lines when a service starts. The second line has the service's port,
// even if the emulator chose a free port.
var (
	startingLine  = regexp.MustCompile(`^Azurite (Blob|Queue|Table) service is starting at (\S+)`)
	listeningLine = regexp.MustCompile(
		`^Azurite (Blob|Queue|Table) service is successfully listening at ` +
			`https?://127\.0\.0\.1:(\d+)`)
)

const keptOutput = 4 << 10 // bytes of the output's end that are kept for an error

type outputReader struct {
	log   io.Writer
	ready chan Ports // gets the ports when all services listen

	mu       sync.Mutex
	line     []byte // the beginning of a line that is not complete yet
	tail     []byte // the end of the output, for an error
	ports    Ports  // 0 = the service does not listen yet
	starting string // the address of the service that started last
}

func newOutput(log io.Writer) *outputReader {
	if log == nil {
		log = io.Discard
	}
	return &outputReader{log: log, ready: make(chan Ports, 1)}
}

// Write implements io.Writer. Write never fails, because an error of the log must not stop the
// emulator.
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
		o.ports = Ports{} // prevents a second send, which would block
	}
}

// startFailure returns an error with the reason why the child ended before all services listened.
// The parameter err is the child's result.
func (o *outputReader) startFailure(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(o.tail, []byte("EADDRINUSE")) {
		return fmt.Errorf("port taken: %s", o.starting)
	}
	return fmt.Errorf("ended at once (%v): %s", err, bytes.TrimSpace(o.tail))
}
