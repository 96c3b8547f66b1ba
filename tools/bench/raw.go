package main

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// rawVariable is the environment variable with the settings of the bare program that accepts bodies
// (see rawProgram), as JSON. If the variable is set, this process runs only the bare program.
const rawVariable = "WEIR_BENCH_RAW"

type rawSettings struct{ Storage, Prefix string }

// The bounds by which Weir stores a body: up to rawStoredLimit bytes as it is, else compressed; in
// the message's row if it has up to rawInlineLimit bytes then, else in a blob. They are copies of
// the bounds in internal/lane/body.go.
const (
	rawStoredLimit = 2 << 10
	rawInlineLimit = 60 << 10
)

// rawProgram is the baseline for the acceptance of a body. It reads the bytes of a post, compresses
// and stores them as Weir does, and answers 202. It does not look into the body.
type rawProgram struct {
	mu     sync.Mutex // held while a body is stored
	bare   *bareClient
	writer *flate.Writer
	number int // number of blobs
}

// runRawProcess runs the bare program if rawVariable is set, and reports whether it ran. The
// program prints its host and port. It ends when "in" is at its end, or at an error.
func runRawProcess(ctx context.Context, in io.Reader, out io.Writer) (bool, error) {
	text := os.Getenv(rawVariable)
	if text == "" {
		return false, nil
	}

	var s rawSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return true, err
	}

	bare, err := openBareClient(ctx, s.Storage, s.Prefix)
	if err != nil {
		return true, err
	}
	defer bare.account.Close()
	writer, err1 := flate.NewWriter(nil, flate.BestSpeed)
	socket, err2 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err1, err2); err != nil {
		return true, err
	}

	failed := make(chan error, 2)
	server := &http.Server{Handler: &rawProgram{bare: bare, writer: writer},
		ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() { failed <- server.Serve(socket) }()
	go func() {
		_, err := io.Copy(io.Discard, in)
		failed <- errors.Join(err, errInputEnded)
	}()

	fmt.Fprintln(out, socket.Addr())
	if err := <-failed; !errors.Is(err, errInputEnded) {
		return true, err
	}

	return true, nil
}

func (p *rawProgram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = p.storeBody(r.Context(), body)
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)

	// an error means that the client has gone
	_, _ = io.WriteString(w, `{"id":"AQABL714SFvJDd7dAA","stage":"queued"}`)
}

func (p *rawProgram) storeBody(ctx context.Context, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	packed, err := p.packBody(body)
	if err != nil {
		return err
	}

	op := p.bare.newRowOp(message{"/raw", 1})
	op.Values["Size"], op.Values["Body"] = int64(len(body)), packed
	if len(packed) > rawInlineLimit {
		p.number++
		name := fmt.Sprintf("raw/%d", p.number)
		delete(op.Values, "Body")
		op.Values["Blob"] = name
		if err := p.bare.account.Bodies().Put(ctx, name, packed); err != nil {
			return err
		}
	}

	return p.bare.insertRow(ctx, op)
}

func (p *rawProgram) packBody(body []byte) ([]byte, error) {
	if len(body) <= rawStoredLimit {
		return body, nil
	}

	var packed bytes.Buffer
	p.writer.Reset(&packed)
	_, err := p.writer.Write(body)

	return packed.Bytes(), errors.Join(err, p.writer.Close())
}
