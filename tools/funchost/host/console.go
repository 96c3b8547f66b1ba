package host

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// console writes the host's own lines, each with the time, and the output of the handlers.
type console struct {
	mu    sync.Mutex
	out   io.Writer
	now   func() time.Time
	quiet bool // omit the lines of logDetail, and the lines of logEvent below Warning

	filter logFilter
	logged map[string]Logged
}

func (c *console) writeLine(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.out, line+"\n") // there is nowhere to report an error
}

func (c *console) logOwn(format string, args ...any) {
	c.writeLine("[" + c.now().UTC().Format("2006-01-02T15:04:05.000Z") + "] " +
		fmt.Sprintf(format, args...))
}

// logDetail logs a line, unless the console is quiet.
func (c *console) logDetail(format string, args ...any) {
	if !c.quiet {
		c.logOwn(format, args...)
	}
}

// maxLine is the length in bytes at which a lineWriter writes an unfinished line as if the line
// ended there.
const maxLine = 64 << 10

// lineWriter writes one output stream of a handler to the console, line by line. It puts a prefix
// before each line, and omits the lines that the console's filter does not admit. It remembers the
// last three lines, including omitted ones.
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

// flushPartial writes the text after the last line break, if there is any.
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
