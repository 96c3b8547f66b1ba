package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// newClient returns a client that keeps many connections open, as many upstreams would.
func newClient() *http.Client {
	return &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute}}
}

// message is a message to post. Its path is the ordering key.
type message struct {
	path    string
	version int
}

// bodySize is the size in bytes of a body that articleBody returns.
const bodySize = 1024

var filling = strings.Repeat("Lorem ipsum dolor sit amet. ", bodySize/28)

func (m message) articleBody() string {
	text := fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title><text>`, m.path,
		m.version, m.version)
	return text + filling[:max(0, bodySize-len(text)-17)] + "</text></article>"
}

// postMessage posts one message to Weir or to the CMS. It returns an error unless the status is
// 2xx.
func postMessage(ctx context.Context, c *http.Client, url string, m message) error {
	return postBody(ctx, c, url, m.articleBody(), nil)
}

// postBody posts an XML body. The header can be nil. postBody returns an error unless the status is
// 2xx.
func postBody(ctx context.Context, c *http.Client, url, body string, header http.Header) error {
	status, answer, err := postAndRead(ctx, c, url, body, header)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("post to %s: %d: %s", url, status, answer)
	}
	return err
}

// postFor posts an XML body. It returns an error unless the answer has the status "want".
func postFor(ctx context.Context, c *http.Client, url, body string, want int) error {
	status, answer, err := postAndRead(ctx, c, url, body, nil)
	if err == nil && status != want {
		err = fmt.Errorf("post to %s: %d: %s, want %d", url, status, answer, want)
	}
	return err
}

// postAndRead posts an XML body, and returns the status and the body of the answer. If header is
// not nil, postAndRead adds Content-Type to the header.
func postAndRead(ctx context.Context, c *http.Client, url, body string, header http.Header) (int,
	[]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}

	if header != nil {
		req.Header = header
	}

	req.Header.Set("Content-Type", "application/xml")
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)

	return resp.StatusCode, answer, err
}

// getURL sends a GET and calls "read" with the body of the answer. If "read" is nil, the body is
// discarded. Each status except 200 is an error.
func getURL(ctx context.Context, c *http.Client, url string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	if read != nil {
		return read(resp.Body)
	}

	_, err = io.Copy(io.Discard, resp.Body)

	return err
}

// readMetrics reads metrics in Prometheus's text format. The keys of the result are the metrics'
// names with their labels.
func readMetrics(ctx context.Context, c *http.Client, url string) (map[string]float64, error) {
	values := map[string]float64{}
	err := getURL(ctx, c, url, func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			name, text, ok := strings.Cut(lines.Text(), " ")
			if i := strings.LastIndex(lines.Text(), "} "); i >= 0 {
				name, text = lines.Text()[:i+1], lines.Text()[i+2:]
			}

			if v, err := strconv.ParseFloat(text, 64); ok && err == nil {
				values[name] = v
			}
		}

		return lines.Err()
	})
	if err == nil && len(values) == 0 {
		err = errors.New("no metrics in the answer")
	}

	return values, err
}

// labelValue returns the value of one label in a text such as {service="blob"}, or "" if the label
// is missing.
func labelValue(labels, name string) string {
	if m := regexp.MustCompile(`[{,]` + name + `="([^"]*)"`).FindStringSubmatch(labels); m != nil {
		return m[1]
	}
	return ""
}
