package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// newClient keeps a connection for each of many clients, as upstream systems would.
func newClient() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute}}
}

// message is one to be sent.
type message struct {
	path    string
	version int
}

// bodySize is about what a message has, in bytes.
const bodySize = 1024

var filling = strings.Repeat("Lorem ipsum dolor sit amet. ", bodySize/28)

func (m message) body() string {
	text := fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title><text>`, m.path, m.version, m.version)
	return text + filling[:max(0, bodySize-len(text)-17)] + "</text></article>"
}

// accepted is what the answer to a message says.
type accepted struct {
	ID         string    `json:"id"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

// post sends one message and expects the status given.
func post(ctx context.Context, c *http.Client, url string, m message, status int) (accepted, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(m.body()))
	if err != nil {
		return accepted{}, err
	}
	req.Header.Set("Content-Type", "application/xml")
	resp, err := c.Do(req)
	if err != nil {
		return accepted{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return accepted{}, err
	}
	if resp.StatusCode != status {
		return accepted{}, fmt.Errorf("post %s: %s: %s", m.path, resp.Status, data)
	}
	var a accepted
	if status == http.StatusAccepted {
		err = json.Unmarshal(data, &a)
	}
	return a, err
}

// get expects 200 and hands the body to read, if there is one.
func get(ctx context.Context, c *http.Client, url string, read func(io.Reader) error) error {
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

// scrape reads metrics in Prometheus's text format: values by name with labels.
func scrape(ctx context.Context, c *http.Client, url string) (map[string]float64, error) {
	values := map[string]float64{}
	err := get(ctx, c, url, func(body io.Reader) error {
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

// label finds a label's value.
func label(labels, name string) string {
	if m := regexp.MustCompile(`[{,]` + name + `="([^"]*)"`).FindStringSubmatch(labels); m != nil {
		return m[1]
	}
	return ""
}
