// Command demo shows the effect of Weir in a minute. It sends the same burst of messages straight
// to the demo CMS, and then through Weir. Then it prints the CMS's records of both runs side by
// side.
//
// Many clients send concurrently, and any free client sends the next message of a path, as if
// several systems edited one site. A message counts as overtaken if the CMS wrote a later message
// of the same path first. A later message is one that arrived later: at the CMS in the first run,
// at Weir in the second.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"weir/internal/democms"
)

type demoOptions struct {
	port, cmsPort, storagePort int    // ports of Weir, the demo CMS and Azurite
	messages, paths, clients   int    // numbers of messages, paths and clients in each run
	cms, weir                  string // addresses of the demo CMS and of Weir
}

type runOutcome struct {
	stats    democms.Stats
	refused  int64 // requests without a 2xx answer
	duration time.Duration
}

// patience limits the time until the CMS has written all messages of a run.
const patience = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o demoOptions
	flag.IntVar(&o.port, "port", 7071, "port of Weir")
	flag.IntVar(&o.cmsPort, "cms-port", 7072, "port of the demo CMS")
	flag.IntVar(&o.storagePort, "storage-port", 10000,
		"the first of three ports of Azurite, if the demo starts it")
	flag.IntVar(&o.messages, "messages", 300, "messages in each run")
	flag.IntVar(&o.paths, "paths", 20, "content paths of the messages")
	flag.IntVar(&o.clients, "clients", 16, "upstream systems that send at once")
	flag.Parse()
	o.weir, o.cms = fmt.Sprintf("http://127.0.0.1:%d", o.port),
		fmt.Sprintf("http://127.0.0.1:%d", o.cmsPort)
	if err := runDemo(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func runDemo(ctx context.Context, o demoOptions, out io.Writer) error {
	if o.messages < 1 || o.paths < 1 || o.clients < 1 {
		return errors.New("messages, paths and clients must be at least 1")
	}

	stop, err := ensureRunning(ctx, o, out)
	if err != nil {
		return err
	}
	defer stop()
	direct, err := o.sendBurst(ctx, out, "straight to the CMS", o.cms+"/api/content", "direct")
	if err != nil {
		return err
	}

	through, err := o.sendBurst(ctx, out, "through Weir", o.weir+"/api/messages", "weir")
	if err != nil {
		return err
	}

	printTable(out, direct, through)

	if s := through.stats; s.Duplicates+s.Overlaps+s.Overtaken+s.Failures+
		int(through.refused) > 0 ||
		s.Writes != o.messages {
		return errors.New("the run through Weir has a duplicate, an overlap, an overtaken message or a failure, or " +
			"wrote another number of messages than were sent")
	}

	return nil
}

func checkReachable(ctx context.Context, o demoOptions) error {
	for name, address := range map[string]string{"the demo CMS": o.cms + "/stats",
		"Weir": o.weir + "/api/health"} {
		resp, err := getURL(ctx, address)
		if err != nil {
			return fmt.Errorf("%s does not answer at %s: start the system with make run",
				name, address)
		}

		resp.Body.Close()

		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s with %s: see the output of make run", name, address,
				resp.Status)
		}
	}

	return nil
}

// startLimit limits the time until Weir and the demo CMS are ready, if the demo starts them.
const startLimit = 60 * time.Second

// ensureRunning starts Weir and the demo CMS if they are not ready. The returned function stops
// them only if the demo has started them.
func ensureRunning(ctx context.Context, o demoOptions, out io.Writer) (stop func(), err error) {
	if checkReachable(ctx, o) == nil {
		return func() {}, nil
	}

	fmt.Fprintln(out, "the system is not running: starting it for the demo")
	log, err := os.Create(filepath.Join("build", "demo.log"))
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(filepath.Join("build", "tools", "dev"), "--port", strconv.Itoa(o.port),
		"--cms-port", strconv.Itoa(o.cmsPort), "--storage-port", strconv.Itoa(o.storagePort))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the system: %w", err)
	}

	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		log.Close()
	}

	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(startLimit); checkReachable(ctx, o) != nil; {
		select {
		case <-ticker.C:
		case <-ended:
			log.Close()
			return nil, fmt.Errorf("the system did not start: %s", readLastLine(log.Name()))
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}

		if time.Now().After(deadline) {
			stop()
			return nil, fmt.Errorf(
				"the system was not ready within %s; build/demo.log has its output", startLimit)
		}
	}

	return stop, nil
}

// readLastLine returns the last line of a file. If the file cannot be read, readLastLine returns
// the error's text.
func readLastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

func getURL(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// sendBurst sends all messages with o.clients concurrent clients. Then it waits until the CMS has
// written each message that was not refused.
func (o demoOptions) sendBurst(ctx context.Context, out io.Writer, title, target,
	name string) (runOutcome, error) {
	resp, err := http.Post(o.cms+"/reset", "", nil)
	if err != nil {
		return runOutcome{}, err
	}

	resp.Body.Close()
	began := time.Now()
	paths := fmt.Sprintf("/demo/%s-%d/", name, began.UnixNano())
	var sent, refused atomic.Int64
	work := make(chan string)
	var wg sync.WaitGroup
	for range o.clients {
		wg.Go(func() {
			for body := range work {
				if !postMessage(ctx, target, body) {
					refused.Add(1)
				}
				sent.Add(1)
			}
		})
	}

	go func() {
		defer close(work)
		for i := range o.messages {
			body := fmt.Sprintf(
				`<article path="%s%d" version="%d"><title>Message %d</title></article>`, paths,
				i%o.paths, i/o.paths+1, i)
			select {
			case work <- body:
			case <-ctx.Done():
				return
			}
		}
	}()

	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	stats, err := o.awaitWrites(ctx, out, title, &sent, &refused, done)

	return runOutcome{stats, refused.Load(), time.Since(began)}, err
}

// awaitWrites draws a progress bar until all messages are sent and the CMS has written each message
// that was not refused. If all messages are sent but the CMS has not written them within patience,
// awaitWrites returns an error.
func (o demoOptions) awaitWrites(ctx context.Context, out io.Writer, title string, sent,
	refused *atomic.Int64, done <-chan struct{}) (democms.Stats, error) {
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return democms.Stats{}, ctx.Err()
		case <-ticker.C:
		}

		stats, err := o.readStats(ctx)
		if err != nil {
			return stats, err
		}

		finished := stats.Writes+int(refused.Load()) >= o.messages
		drawBar(out, title, int(sent.Load()), stats.Writes, o.messages, finished)

		select {
		case <-done:
		default:
			continue
		}

		if finished {
			return stats, nil
		}

		if time.Now().After(deadline) {
			fmt.Fprintln(out)
			return stats, fmt.Errorf("%s: after %s the CMS has had %d of %d messages", title,
				patience, stats.Writes, o.messages)
		}
	}
}

func (o demoOptions) readStats(ctx context.Context) (democms.Stats, error) {
	var s democms.Stats
	resp, err := getURL(ctx, o.cms+"/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

func postMessage(ctx context.Context, target, body string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return false
	}

	req.Header.Set("Content-Type", "application/xml")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)

	return resp.StatusCode/100 == 2
}

// barWidth is the length of a progress bar in characters.
const barWidth = 30

// drawBar redraws the bar in place if "out" is a terminal. Any other output gets only the last bar.
func drawBar(out io.Writer, title string, sent, written, total int, last bool) {
	file, ok := out.(*os.File)
	terminal := false
	if ok {
		info, err := file.Stat()
		terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}

	if !terminal && !last {
		return
	}

	full := min(barWidth, written*barWidth/total)
	text := fmt.Sprintf("%-20s [%s%s] sent %d, written %d of %d", title, strings.Repeat("█", full),
		strings.Repeat("·", barWidth-full), sent, written, total)
	if terminal {
		text = "\r" + text
	}

	fmt.Fprint(out, text)
	if last {
		fmt.Fprintln(out)
	}
}

func printTable(out io.Writer, direct, through runOutcome) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tstraight\tthrough Weir\t")
	row := func(name string, f func(runOutcome) any) {
		fmt.Fprintf(w, "%s\t%v\t%v\t\n", name, f(direct), f(through))
	}
	row("duplicates (two items of one path)", func(o runOutcome) any { return o.stats.Duplicates })
	row("overlapping writes of one path", func(o runOutcome) any { return o.stats.Overlaps })
	row("writes at once, at most", func(o runOutcome) any { return o.stats.MaxConcurrent })
	row("overtaken (an older message written last)",
		func(o runOutcome) any { return o.stats.Overtaken })
	row("failures", func(o runOutcome) any { return o.stats.Failures + int(o.refused) })
	row("time", func(o runOutcome) any { return o.duration.Round(10 * time.Millisecond) })
	w.Flush()
}
