package folder

import (
	"errors"
	"io"
	"sync"
)

// bodyReader remembers the error of a body, because Files.Write returns it unchanged. The transport
// can read from it after the call.
type bodyReader struct {
	io.Reader
	mu  sync.Mutex
	err error
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}

	return n, err
}

func (b *bodyReader) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.err
}
