package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// handlerPath is the handler of the app that make build has staged.
const handlerPath = "build/app/handler"

// sampleMessage is the message that the welcome shows, if the contracts accept it.
const sampleMessage = `<article path="/news/1" version="1"><title>Hello</title></article>`

// checkTimeout bounds a run of weir check, which may wait for the CMS.
const checkTimeout = 15 * time.Second

// finding is a line of weir check --json.
type finding struct {
	Name   string   `json:"name"`
	Detail string   `json:"detail"`
	Wrong  []string `json:"wrong"`
	Todo   string   `json:"todo"`
}

// checkSettings runs weir check. If the settings or the contracts are wrong, it returns an error
// with the lines of weir check. The lines about storage and the CMS do not count, because both can
// still be starting. It returns the names of the contracts.
func checkSettings(ctx context.Context, env []string) (contracts string, err error) {
	out, err := runHandler(ctx, env, nil, "check", "--json")
	findings := parseFindings(out)
	if len(findings) == 0 {
		return "", fmt.Errorf("weir check: %w", err)
	}

	var problems []string
	for _, f := range findings {
		if f.Name == "contracts" {
			contracts = f.Detail
		}

		if !slices.Contains([]string{"settings", "contracts", "calendar", "upstreams"}, f.Name) {
			continue
		}

		for _, wrong := range f.Wrong {
			problems = append(problems, fmt.Sprintf("%-9s wrong: %s; %s", f.Name, wrong, f.Todo))
		}
	}

	if len(problems) > 0 {
		return "", errors.New("the settings are wrong:\n" + strings.Join(problems, "\n"))
	}

	return contracts, nil
}

func parseFindings(out []byte) (findings []finding) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var f finding
		if json.Unmarshal(lines.Bytes(), &f) == nil && f.Name != "" {
			findings = append(findings, f)
		}
	}

	return findings
}

// isSampleAccepted reports whether a contract accepts sampleMessage.
func isSampleAccepted(ctx context.Context, env []string) bool {
	_, err := runHandler(ctx, env, []byte(sampleMessage), "check", "-")
	return err == nil
}

func runHandler(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, handlerPath, args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), env...), bytes.NewReader(stdin)
	return cmd.Output()
}

// describeEnd returns the reason why the host has ended, from its last lines of output. The
// handler's last error is more helpful than the words of the host around it.
func describeEnd(lines []string) string {
	for _, line := range slices.Backward(lines) {
		_, record, found := strings.Cut(line, `{"time":`)
		if !found {
			continue
		}

		var entry struct {
			Err string `json:"err"`
		}
		decoder := json.NewDecoder(strings.NewReader(`{"time":` + record))
		if decoder.Decode(&entry) == nil && entry.Err != "" {
			return entry.Err
		}
	}

	if len(lines) == 0 {
		return "it printed nothing"
	}

	return lines[len(lines)-1]
}

// restarts notices in the output of the host that a handler has ended and was started again.
type restarts struct{ ended string }

// notice returns a line for the terminal, or "" if there is nothing to say.
func (r *restarts) notice(line string) string {
	if _, problem, found := strings.Cut(line, "handler exited with "); found &&
		strings.Contains(line, "Worker error") {
		if r.ended, _, _ = strings.Cut(problem, ":"); r.ended == "code -1" {
			r.ended = "killed by a signal"
		}
	}

	if strings.Contains(line, "Restarting the handler of instance") {
		r.ended = "it ends when the number of lanes changes, or when storage is removed"
	}

	if r.ended == "" || !strings.Contains(line, "Worker process started and initialized") {
		return ""
	}

	text := fmt.Sprintf("The handler ended (%s) and was started again.", r.ended)
	r.ended = ""

	return text
}
