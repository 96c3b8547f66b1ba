package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// hostFile is host.json, with overrides from environment variables. Lookups of keys ignore case.
type hostFile struct {
	tree     map[string]any
	problems []error
}

const overridePrefix = "AzureFunctionsJobHost__"

func readHostFile(root string, env *environment) (*hostFile, error) {
	raw, err := os.ReadFile(filepath.Join(root, "host.json"))
	if err != nil {
		return nil, fmt.Errorf("read host.json (is the script root right?): %w", err)
	}

	h := &hostFile{}
	if err := json.Unmarshal(raw, &h.tree); err != nil {
		return nil, fmt.Errorf("host.json: %w", err)
	}

	if v, _ := h.lookUp("version").(string); v != "2.0" {
		return nil, errors.New(`host.json: want "version": "2.0"`)
	}

	for _, name := range env.names {
		if path, ok := strings.CutPrefix(name, overridePrefix); ok {
			h.setOverride(strings.Split(path, "__"), env.getVar(name))
		}
	}

	return h, nil
}

func findKey(tree map[string]any, key string) string {
	for k := range tree {
		if strings.EqualFold(k, key) {
			return k
		}
	}
	return key
}

func (h *hostFile) setOverride(path []string, value string) {
	tree := h.tree
	for _, key := range path[:len(path)-1] {
		key = findKey(tree, key)
		child, ok := tree[key].(map[string]any)
		if !ok {
			child = map[string]any{}
			tree[key] = child
		}

		tree = child
	}

	last := path[len(path)-1]
	tree[findKey(tree, last)] = value
}

func (h *hostFile) lookUp(path ...string) any {
	var at any = h.tree
	for _, key := range path {
		tree, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = tree[findKey(tree, key)]
	}

	return at
}

func (h *hostFile) addProblem(path []string, want string) {
	h.problems = append(h.problems,
		fmt.Errorf("host.json: %s: want %s", strings.Join(path, "."), want))
}

func (h *hostFile) readString(fallback string, path ...string) string {
	switch v := h.lookUp(path...).(type) {
	case nil:
		return fallback
	case string:
		return v
	default:
		h.addProblem(path, "a string")
		return fallback
	}
}

func (h *hostFile) readStrings(path ...string) []string {
	list, _ := h.lookUp(path...).([]any)
	var out []string
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func (h *hostFile) readBool(fallback bool, path ...string) bool {
	switch v := h.lookUp(path...).(type) {
	case nil:
		return fallback
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(strings.ToLower(v)); err == nil {
			return b
		}
	}

	h.addProblem(path, "true or false")
	return fallback
}

func (h *hostFile) readInt(fallback, least, most int, path ...string) int {
	n := fallback
	switch v := h.lookUp(path...).(type) {
	case nil:
		return fallback
	case float64:
		n = int(v)
	case string:
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			n = least - 1
		}

	default:
		n = least - 1
	}

	if n < least || n > most {
		h.addProblem(path, fmt.Sprintf("a number from %d to %d", least, most))
		return fallback
	}

	return n
}

func (h *hostFile) readSpan(fallback time.Duration, path ...string) time.Duration {
	v := h.lookUp(path...)
	if v == nil {
		return fallback
	}

	text, _ := v.(string)
	d, err := parseSpan(text)
	if err != nil {
		h.addProblem(path, "a time span such as 00:05:00")
		return fallback
	}

	return d
}

// parseSpan parses a time span of host.json: [d.]hh:mm:ss[.fff]. For "-1", which means no limit, it
// returns -1.
func parseSpan(s string) (time.Duration, error) {
	if s == "-1" {
		return -1, nil
	}

	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, fmt.Errorf("time span %q", s)
	}

	days := "0"
	if d, h, ok := strings.Cut(parts[0], "."); ok {
		days, parts[0] = d, h
	}

	d, errD := strconv.Atoi(days)
	h, errH := strconv.Atoi(parts[0])
	m, errM := strconv.Atoi(parts[1])
	sec, errS := strconv.ParseFloat(parts[2], 64)
	if err := errors.Join(errD, errH, errM, errS); err != nil || d < 0 || h < 0 || h > 23 ||
		m < 0 || m > 59 ||
		sec < 0 || sec >= 60 {
		return 0, fmt.Errorf("time span %q", s)
	}

	return time.Duration(d*24+h)*time.Hour + time.Duration(m)*time.Minute +
		time.Duration(sec*float64(time.Second)), nil
}

// queueOptions has the settings of extensions.queues in host.json.
type queueOptions struct {
	batchSize, newBatchThreshold, maxDequeueCount int
	visibilityTimeout, maxPollingInterval         time.Duration
	base64                                        bool
}

func (h *hostFile) readQueueOptions(env *environment) queueOptions {
	at := func(name string) []string { return []string{"extensions", "queues", name} }
	o := queueOptions{
		batchSize:          h.readInt(16, 1, 32, at("batchSize")...),
		maxDequeueCount:    h.readInt(5, 1, 1<<31-1, at("maxDequeueCount")...),
		visibilityTimeout:  h.readSpan(0, at("visibilityTimeout")...),
		maxPollingInterval: h.readSpan(time.Minute, at("maxPollingInterval")...),
		base64: !strings.EqualFold(h.readString("base64", at("messageEncoding")...),
			"none"),
	}
	if o.maxPollingInterval == time.Minute &&
		strings.EqualFold(env.getVar("AZURE_FUNCTIONS_ENVIRONMENT"), "Development") {
		// the real host does so even if host.json sets one minute
		o.maxPollingInterval = 2 * time.Second
	}

	processors := runtime.NumCPU()
	if env.getVar("WEBSITE_SKU") == "Dynamic" {
		processors = 1
	}

	o.newBatchThreshold = h.readInt(o.batchSize/2*processors, 0, 1<<31-1,
		at("newBatchThreshold")...)
	if o.maxPollingInterval < 100*time.Millisecond {
		h.addProblem(at("maxPollingInterval"), "at least 100 ms")
	}

	return o
}
