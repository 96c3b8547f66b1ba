package host

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// console is the host's output: its own lines, with the time, and those of the handlers.
type console struct {
	mu    sync.Mutex
	out   io.Writer
	now   func() time.Time
	quiet bool // no lines about single invocations

	filter logFilter
	logged map[string]Logged
}

func (c *console) plain(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.out, line+"\n") // nowhere to report it
}

func (c *console) log(format string, args ...any) {
	c.plain("[" + c.now().UTC().Format("2006-01-02T15:04:05.000Z") + "] " + fmt.Sprintf(format, args...))
}

// detail logs what belongs to one invocation.
func (c *console) detail(format string, args ...any) {
	if !c.quiet {
		c.log(format, args...)
	}
}

// maxLine cuts lines that no one would read.
const maxLine = 64 << 10

// lines passes a handler's output on line by line, each with a prefix, and remembers the last three.
type lines struct {
	console *console
	prefix  string
	level   func(line string) logLevel

	mu   sync.Mutex
	part []byte
	last []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok && len(l.part) < maxLine {
			return len(b), nil
		}
		l.part = append([]byte(nil), rest...)
		l.pass(string(bytes.TrimSuffix(line, []byte("\r"))))
	}
}

func (l *lines) pass(line string) {
	l.last = append(l.last, line)
	if len(l.last) > 3 {
		l.last = l.last[1:]
	}
	if l.console.admits(categoryConsole, l.level(line), line) {
		l.console.plain(l.prefix + line)
	}
}

// flush passes on what has no line end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.pass(string(l.part))
		l.part = nil
	}
}

func (l *lines) tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}
