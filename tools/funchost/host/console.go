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

// logDetail logs a line about a single invocation, except when the host is quiet.
func (c *console) logDetail(format string, args ...any) {
	if !c.quiet {
		c.logOwn(format, args...)
	}
}

// maxLine is the largest length of a line in bytes. The rest of a longer line is left out.
const maxLine = 64 << 10

// lineWriter passes a handler's output on line by line, each line with a prefix. It remembers the last three lines.
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

// flushPartial writes the last line if it ends without a line break.
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
