package host

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// console is the host's output: the lines of the host, with the time, and the lines of the handlers.
type console struct {
	mu    sync.Mutex
	out   io.Writer
	now   func() time.Time
	quiet bool // no lines about single invocations

	filter logFilter
	logged map[string]Logged
}

func (c *console) writeLine(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.out, line+"\n") // an error has no place to go
}

func (c *console) logOwn(format string, args ...any) {
	c.writeLine("[" + c.now().UTC().Format("2006-01-02T15:04:05.000Z") + "] " + fmt.Sprintf(format, args...))
}

// logDetail logs a line, such as one about a single invocation. If the host is quiet, it logs nothing.
func (c *console) logDetail(format string, args ...any) {
	if !c.quiet {
		c.logOwn(format, args...)
	}
}

// maxLine is the longest part of a line that waits for its end, in bytes. A longer part is written as a line of its
// own.
const maxLine = 64 << 10

// lineWriter passes one stream of a handler's output on to the console. It passes only lines that host.json's filter
// admits, and puts a prefix before each. It remembers the last three lines, admitted or not.
type lineWriter struct {
	console *console
	prefix  string
	level   func(line string) logLevel

	mu      sync.Mutex
	partial []byte
	last    []string
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok && len(l.partial) < maxLine {
			return len(b), nil
		}
		l.partial = append([]byte(nil), rest...)
		l.writeThrough(string(bytes.TrimSuffix(line, []byte("\r"))))
	}
}

func (l *lineWriter) writeThrough(line string) {
	l.last = append(l.last, line)
	if len(l.last) > 3 {
		l.last = l.last[1:]
	}
	if l.console.admitLine(categoryConsole, l.level(line), line) {
		l.console.writeLine(l.prefix + line)
	}
}

// flushPartial writes the last line if it has no line break at its end.
func (l *lineWriter) flushPartial() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.writeThrough(string(l.partial))
		l.partial = nil
	}
}

func (l *lineWriter) lastLines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}
