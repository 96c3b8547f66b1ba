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

// lenientListener makes net/http accept a path such as /100%, whose percent sign is not the
// beginning of an escape such as %20. Kestrel, the real host's HTTP server, accepts such a path,
// but net/http refuses it. The listener replaces the percent sign by %25.
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

	return &lenientConn{TCPConn: tcp, in: bufio.NewReaderSize(tcp, 64<<10), expects: requestLine},
		nil
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
	unknown // the remaining bytes pass unchanged
)

// lenientConn finds the first line of each request on a connection. It parses headers and chunks,
// too, so that it never changes a line of a body.
type lenientConn struct {
	*net.TCPConn // not net.Conn, because the server needs CloseWrite
	in           *bufio.Reader
	expects      requestPart
	left         int64 // bytes of the body or chunk that are still to come
	isChunked    bool
	partial      []byte // beginning of a line whose end has not arrived
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

// readLine moves the next line to c.ready. It can be called again after an error, for example after
// a read deadline.
func (c *lenientConn) readLine() error {
	text, err := c.in.ReadSlice('\n')
	c.partial = append(c.partial, text...)
	switch {
	case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(c.partial) > 0:
		c.expects = unknown // the line is too long or incomplete: the server refuses it
	case err != nil:
		return err
	default:
		c.readSyntax(c.partial)
	}

	c.ready, c.partial = c.partial, nil

	return nil
}

// readSyntax finds out from a line which part of the request comes next. If the line is the first
// one of a request, readSyntax also mends the line.
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
		c.expects, c.left = chunkData, size+2 // with the line break after the chunk
	}
}

// mendRequestLine escapes the percent signs in the path, except those that begin an escape.
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
