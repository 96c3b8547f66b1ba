package host

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
)

// lenientListener accepts request targets that net/http refuses and Kestrel accepts: those whose path has a percent
// sign that begins no escape. It replaces such a sign by %25, which decodes to a percent sign.
type lenientListener struct{ net.Listener }

func (l lenientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	return &lenientConn{TCPConn: tcp, in: bufio.NewReaderSize(tcp, 64<<10), expects: requestLine}, nil
}

// requestPart is the part of a request that comes next on a connection.
type requestPart int

const (
	requestLine requestPart = iota
	headerLine
	sizedBody
	chunkSize
	chunkData
	trailerLine
	unknown // the rest passes unchanged
)

// lenientConn parses the requests on a connection far enough to find the first line of each. It must know which lines
// belong to a body, because otherwise it could change a line of a body.
type lenientConn struct {
	*net.TCPConn // not net.Conn, because the server needs CloseWrite
	in           *bufio.Reader
	expects      requestPart
	left         int64 // bytes of the body or chunk that are still to come
	isChunked    bool
	partial      []byte // the part of a line that has arrived
	ready        []byte // bytes that the server reads next
}

func (c *lenientConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		switch c.expects {
		case unknown:
			return c.in.Read(p)
		case sizedBody, chunkData:
			return c.readBody(p)
		default:
			if err := c.readLine(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

func (c *lenientConn) readBody(p []byte) (int, error) {
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); c.left == 0 {
		c.expects = requestLine
		if c.isChunked {
			c.expects = chunkSize
		}
	}
	return n, err
}

// readLine makes one line ready. After an error it can be called again, because the error may be a deadline that has
// passed.
func (c *lenientConn) readLine() error {
	text, err := c.in.ReadSlice('\n')
	c.partial = append(c.partial, text...)
	switch {
	case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(c.partial) > 0:
		c.expects = unknown // the line is too long, or cut off: the server refuses it
	case err != nil:
		return err
	default:
		c.readSyntax(c.partial)
	}
	c.ready, c.partial = c.partial, nil
	return nil
}

// readSyntax finds out from a line which part of the request comes next, and mends the first line of a request.
func (c *lenientConn) readSyntax(text []byte) {
	line := strings.TrimRight(string(text), "\r\n")
	switch c.expects {
	case requestLine:
		if line != "" { // the server skips empty lines before a request
			c.partial = mendRequestLine(text)
			c.expects, c.left, c.isChunked = headerLine, 0, false
		}
	case headerLine:
		c.takeHeader(line)
	case chunkSize:
		c.takeChunkSize(line)
	case trailerLine:
		if line == "" {
			c.expects = requestLine
		}
	}
}

func (c *lenientConn) takeHeader(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case line == "" && c.isChunked:
		c.expects = chunkSize
	case line == "" && c.left > 0:
		c.expects = sizedBody
	case line == "":
		c.expects = requestLine
	case strings.EqualFold(name, "Transfer-Encoding"):
		c.isChunked = true
	case strings.EqualFold(name, "Content-Length"):
		c.left, _ = strconv.ParseInt(value, 10, 64) // the server refuses a wrong number
	case strings.EqualFold(name, "Upgrade"):
		c.expects = unknown
	}
}

func (c *lenientConn) takeChunkSize(line string) {
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseInt(strings.TrimSpace(digits), 16, 64)
	switch {
	case err != nil || size < 0:
		c.expects = unknown
	case size == 0:
		c.expects = trailerLine
	default:
		c.expects, c.left = chunkData, size+2 // with the line break behind the chunk
	}
}

// mendRequestLine escapes the percent signs of the target's path that begin no escape.
func mendRequestLine(line []byte) []byte {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	end := bytes.LastIndexByte(rest, ' ')
	if !ok || end < 0 {
		return line
	}
	path, query, hasQuery := strings.Cut(string(rest[:end]), "?")
	out := string(method) + " " + escapePercents(path)
	if hasQuery {
		out += "?" + query
	}
	return append([]byte(out), rest[end:]...)
}
