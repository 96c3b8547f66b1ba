package host

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// logLevel is the severity of a line. The names of the levels in host.json are in levelNames.
type logLevel int

const (
	levelTrace logLevel = iota
	levelDebug
	levelInformation
	levelWarning
	levelError
	levelCritical
	levelNone // in host.json it means that no line is logged
)

var levelNames = []string{"Trace", "Debug", "Information", "Warning", "Error", "Critical", "None"}

// Categories of the real host's lines. Lines about an invocation have the category that categoryOf
// returns.
const (
	categoryConsole = "Host.Function.Console" // the handler's output
	categoryStorage = "Azure.Core"            // the host's requests to queues
	categoryPoison  = "Host.Triggers.Queues"  // messages that go to the poison queue
)

func categoryOf(f string) string { return "Function." + f }

// logFilter is logging.logLevel of host.json. Each key is a prefix of categories in lower case, and
// each value is the lowest level that is logged for these categories. The key "" is for all other
// categories.
type logFilter map[string]logLevel

func (h *hostFile) readLogFilter() logFilter {
	filter := logFilter{"": levelInformation}
	set, _ := h.lookUp("logging", "logLevel").(map[string]any)
	for category, value := range set {
		level := slices.IndexFunc(levelNames,
			func(name string) bool { return strings.EqualFold(name, fmt.Sprint(value)) })
		if level < 0 {
			h.addProblem([]string{"logging", "logLevel", category},
				"one of "+strings.Join(levelNames, ", "))
			continue
		}

		if strings.EqualFold(category, "default") {
			category = ""
		}

		filter[strings.ToLower(category)] = logLevel(level)
	}

	return filter
}

// admitsLevel reports whether a line with this category and level is logged. The longest key that
// is a prefix of the category decides.
func (f logFilter) admitsLevel(category string, level logLevel) bool {
	rule := ""
	for prefix := range f {
		if len(prefix) > len(rule) && strings.HasPrefix(strings.ToLower(category), prefix) {
			rule = prefix
		}
	}
	return level >= f[rule]
}

// Logged counts the lines that the real host would have logged in one category. Bytes is the total
// length of their texts, without times and prefixes.
type Logged struct {
	Lines, Bytes int64
}

// Logged returns the counts by category. It counts only lines that the real host would also log.
func (h *Host) Logged() map[string]Logged {
	h.console.mu.Lock()
	defer h.console.mu.Unlock()
	return maps.Clone(h.console.logged)
}

// admitLine reports whether the filter of host.json admits a line. It also counts an admitted line
// in c.logged.
func (c *console) admitLine(category string, level logLevel, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.filter.admitsLevel(category, level) {
		return false
	}

	if c.logged == nil {
		c.logged = map[string]Logged{}
	}

	n := c.logged[category]
	c.logged[category] = Logged{n.Lines + 1, n.Bytes + int64(len(text))}

	return true
}

// logEvent logs a line that the real host also logs. If the console is quiet, logEvent counts a
// line below Warning, but does not print the line.
func (c *console) logEvent(category string, level logLevel, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.admitLine(category, level, text) && (!c.quiet || level >= levelWarning) {
		c.logOwn("%s", text)
	}
}

// stderrLevel returns the level of a line that the handler writes to stderr.
func (a *app) stderrLevel(line string) logLevel {
	text := strings.ToLower(line)
	has := func(word string) bool { return strings.Contains(text, word) }
	switch {
	case has("warn"):
		return levelWarning
	case a.stderrIsErrors || has("error") || has("fail") || has("severe") ||
		has("unhandled exception"):
		return levelError
	default:
		return levelInformation
	}
}

func (c caller) reportStart(f *function, id string) {
	reason := "This function was programmatically called via the host APIs."
	switch {
	case f.hasTrigger("queueTrigger"):
		reason = fmt.Sprintf("New queue message detected on '%s'.", f.trigger.queue)
	case f.hasTrigger("timerTrigger"):
		reason = fmt.Sprintf("Timer fired at %s",
			c.host.console.now().Format("2006-01-02T15:04:05.0000000-07:00"))
	}

	c.host.console.logEvent(categoryOf(f.name), levelInformation,
		"Executing 'Functions.%s' (Reason='%s', Id=%s)", f.name, reason, id)
}

func (c caller) reportEnd(name, id string, start time.Time, err error) {
	took := c.host.console.now().Sub(start).Milliseconds()
	if err == nil {
		c.host.console.logEvent(categoryOf(name), levelInformation,
			"Executed 'Functions.%s' (Succeeded, Id=%s, Duration=%dms)", name, id, took)
		return
	}

	c.host.console.logEvent(categoryOf(name), levelError,
		"Executed 'Functions.%s' (Failed, Id=%s, Duration=%dms) %v", name, id, took, err)
}

// requestLog logs the host's requests to queues in the way of .NET's Azure.Core: each try of a
// request, and the answer if there is one.
type requestLog struct{ console *console }

// Do implements policy.Policy.
func (l requestLog) Do(q *policy.Request) (*http.Response, error) {
	id, raw, begun := newGUID(), q.Raw(), time.Now()
	l.console.logEvent(categoryStorage, levelInformation,
		"Request [%s] %s %s %sclient assembly: Azure.Storage.Queues",
		id, raw.Method, withoutSignature(raw.URL), headerText(raw.Header))
	res, err := q.Next()
	took := time.Since(begun).Seconds()
	if err != nil {
		return res, err
	}

	level, kind := levelInformation, "Response"
	if res.StatusCode >= 400 {
		level, kind = levelWarning, "Error response"
	}

	l.console.logEvent(categoryStorage, level, "%s [%s] %s (%04.1fs) %s", kind, id,
		res.Status, took, headerText(res.Header))

	return res, nil
}

// withoutSignature returns the address with the signature masked, because the signature grants
// access.
func withoutSignature(u *url.URL) string {
	shown := *u
	query := shown.Query()
	if query.Has("sig") {
		query.Set("sig", "REDACTED")
		shown.RawQuery = query.Encode()
	}
	return shown.String()
}

// shownHeaders lists the headers that Azure.Core logs with their values. Azure.Core redacts the
// values of all other headers.
var shownHeaders = []string{
	"X-Ms-Request-Id", "X-Ms-Client-Request-Id", "X-Ms-Return-Client-Request-Id", "X-Ms-Version",
	"X-Ms-Date", "Accept",
	"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Etag", "Expires",
	"Last-Modified",
	"Pragma",
	"Retry-After", "Server", "Transfer-Encoding", "User-Agent",
}

func headerText(header http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		value := "REDACTED"
		if slices.Contains(shownHeaders, name) {
			value = strings.Join(header[name], ",")
		}
		b.WriteString(strings.ToLower(name) + ":" + value + " ")
	}

	return b.String()
}
