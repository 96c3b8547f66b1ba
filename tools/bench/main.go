// Command bench measures Weir on this machine against yardsticks of the same run: real
// handler processes under the stand-in for the Functions host, Azurite in memory, and the
// demo CMS, whose own record is the judge of every burst. It prints a table and writes
// build/bench.json. docs/performance.md says what each row means.
//
// A target that is missed is a row that says so; the exit code is 1 only when something
// did not work: a message lost or doubled, an order broken, an error.
//
// With -storage-delay it runs the scenarios once for each delay, with package delay between
// Azurite and everything measured, yardsticks included.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
	"weir/tools/delay"
)

// scenario measures one thing, in one or several rows. A new one is a file with its function, a
// line in scenarios, and a line in the smoke test.
type scenario struct {
	name  string
	about string
	run   func(context.Context, *bench) ([]result, error)
	when  when
}

// when is the pass of a run over several delays in which a scenario is measured.
type when int

const (
	always when = iota // in each: the figures depend on the delay
	last               // in the last alone: its counts and bounds do not depend on the delay
)

// scenarios in the order in which they run and are shown.
func scenarios() []scenario {
	return []scenario{
		{"serial", "a burst on one lane, and its storage transactions", serial, always},
		{"lanes", "the same burst on eight lanes", lanes, always},
		{"fast", "what one lane delivers to a CMS that takes no time", fast, always},
		{"accept", "how soon and how often a message is accepted", accept, always},
		{"cpu", "what a message costs the handler's process", handlerCPU, last},
		{"logs", "what a burst and a trickle leave in the host's log", logs, last},
		{"trickle", "one message a second: cost, and time to the CMS", trickle, always},
		{"two", "the same with two instances in turn", two, always},
		{"idle", "what a system at rest costs, and how soon it wakes", idle, always},
		{"backlog", "a long backlog against a short one", backlog, always},
		{"takeover", "a holder ends while another instance lives", takeover, always},
		{"due", "messages that were told a moment: how late they come", due, always},
		{"retry", "first attempts that fail: how late the second ones come", retry, always},
		{"scheduled", "a lane's other traffic beside many scheduled messages", scheduled, always},
		{"recurring", "four instances over the same schedules: none missed, none doubled", recurring, always},
		{"supersede", "bursts of edits, newer replacing older", supersede, always},
		{"duelane", "one lane with 10, then 20 due a second: how late they come", dueLane, always},
		{"duemoment", "1,000, then 2,000 due at one moment, with plain messages beside", dueMoment, always},
		{"everysecond", "300 schedules of one second: the lane goes on", everySecond, last},
		{"refused", "400 messages that the CMS refuses, in front of 50 good ones", refused, last},
		{"aside", "memory: 20,000 messages behind a blocked key, 1,000 of 200 KiB due at once", aside, last},
		{"memory", "memory: large posts, searches for a text, and large posts while storage hangs", smallMemory, last},
		{"waits", "3,000 answers that are held beside posts; what a status costs in a backlog", waits, last},
		{"retention", "how fast old messages are removed, and how many transactions that takes", retention, last},
		{"sweep", "one sweep over 256 lanes", sweepLanes, last},
		{"tickets", "64 busy lanes on 1 and on 4 instances: how long the queue gets", tickets, last},
		{"groups", "Flex Consumption's groups: a burst moves; trickle and due messages in both places", groups, last},
		{"hang", "storage that hangs: how soon posts are refused, how long a lane stands still", hang, last},
		{"coldstart", "from the start of a handler to its first 202", coldstart, always},
		{"recipe", "the usual recipe, as the baseline to point at", recipe, always},
	}
}

// bench is what all scenarios share.
type bench struct {
	storage *azurite.Process
	delay   time.Duration // of storage's answers, in this pass; 0 = Azurite itself
	far     *delay.Proxy  // what handlers and hosts see; nil = Azurite itself
	calm    *delay.Proxy  // what yardsticks see: the same delay, and no refusals, which they could not bear
	app     string        // script root
	log     io.Writer     // of hosts and handlers
	out     io.Writer     // progress
	temp    string
	profile string // folder for the handlers' CPU profiles; empty = none are written
	sizes   sizes
	results []result
	count   int // prefixes given out
}

// sizes are how much is measured: full by default, tiny in the smoke test.
type sizes struct {
	burst, clients, keys int
	warm                 int           // messages before a measurement
	trips                int           // bare round trips on each side of one
	fast                 int           // messages to the CMS that takes no time
	latencies            int           // samples of one client
	rate                 int           // posts of many clients in a turn
	cpu                  int           // messages whose CPU time is measured
	logged               int           // messages of a burst whose log lines are counted
	loggedTrickle        int           // and of a trickle
	trickle              int           // messages
	gap                  time.Duration // between two of them
	backOff              time.Duration // until the host polls at its longest interval
	idleMinutes          int
	wakes                int           // messages out of idleness
	short, long          int           // backlogs
	longMemory           int           // on memory storage
	takeovers            int           // of each kind
	due                  int           // messages that are due at random moments
	dueLead              time.Duration // until the first of them, for filing all
	dueSpan              time.Duration // from the first to the last
	dueKilled            int           // messages that are due after every instance was killed
	scheduled            int           // messages far ahead, on Azurite
	scheduledMemory      int           // on memory storage
	scheduledBurst       int           // messages of a round beside them
	scheduledRounds      int
	recurring            int           // occurrences in all
	recurringLead        time.Duration // until the first, for the instances to start
	recurringKills       int
	groupBurst           int // messages posted to the http group
	groupFlow            int // messages sent by the process group
	groupDue             int
	retries              int
	retryGap             time.Duration // between two of them
	recipe               int           // messages
	coldLanes            []int
	coldStarts           int // for each number of lanes
	crowds               crowdSizes
}

var fullSizes = sizes{burst: 1000, clients: 64, keys: 200, warm: 300, trips: 100, fast: 3000,
	latencies: 300, rate: 1000, cpu: 5000, logged: 400, loggedTrickle: 60, trickle: 120, gap: time.Second, backOff: 2 * time.Minute, idleMinutes: 3, wakes: 10,
	short: 1000, long: 20_000, longMemory: 100_000, takeovers: 3, recipe: 60,
	due: 1000, dueLead: 10 * time.Second, dueSpan: time.Minute, dueKilled: 200, groupBurst: 2000, groupFlow: 200, groupDue: 100, retries: 500, retryGap: 40 * time.Millisecond,
	scheduled: 5000, scheduledMemory: 100_000, scheduledBurst: 2000, scheduledRounds: 60,
	recurring: 200, recurringLead: 10 * time.Second, recurringKills: 4, coldLanes: []int{1, 64, 208}, coldStarts: 15, crowds: fullCrowds}

// farther returns the sizes of a second pass, with storage far away: less of the scenarios that
// count, and none on memory storage.
func (s sizes) farther() sizes {
	s.trickle, s.idleMinutes, s.wakes = min(s.trickle, 60), min(s.idleMinutes, 1), min(s.wakes, 5)
	s.long, s.takeovers, s.recipe = min(s.long, 5000), min(s.takeovers, 1), min(s.recipe, 20)
	s.scheduled = min(s.scheduled, 2000)
	return s
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if was, err := beYardstick(ctx); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "names of scenarios, with commas between; empty = all")
	list := flag.Bool("list", false, "list the scenarios and end")
	app := flag.String("app", filepath.Join("build", "app"), "script root, as make build stages it")
	file := flag.String("json", filepath.Join("build", "bench.json"), "where the rows are written")
	delays := flag.String("storage-delay", "0s", "median delay of storage's answers; several, with commas between, are so many passes")
	profile := flag.String("profile", "", "a folder: in scenario cpu handlers that make profile built write their CPU profiles there")
	sizes := fullSizes
	flag.IntVar(&sizes.long, "long", sizes.long, "messages of the long backlog on Azurite")
	flag.Parse()
	if *list {
		for _, s := range scenarios() {
			fmt.Printf("%-11s %s\n", s.name, s.about)
		}
		return
	}
	if err := run(ctx, *only, *delays, *app, *file, *profile, sizes); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, delays, app, file, profile string, sizes sizes) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	passes, err := readDelays(delays)
	if err != nil {
		return err
	}
	b, stop, err := newBench(ctx, app, filepath.Dir(file), sizes, os.Stdout)
	if err != nil {
		return err
	}
	b.profile = profile
	err = b.runPasses(ctx, chosen, passes)
	printTable(os.Stdout, b.results)
	return errors.Join(err, writeJSON(file, b.results), stop())
}

// compare sets the recipe's transactions against Weir's, when both were measured.
func compare(results []result) {
	at := func(name string) int {
		return slices.IndexFunc(results, func(r result) bool { return r.Name == name && r.Error == "" })
	}
	if weir, usual := at(serialTransactions), at(recipeTransactions); weir >= 0 && usual >= 0 {
		results[weir] = results[weir].against(results[usual].Value)
	}
}

func choose(only string) ([]scenario, error) {
	all := scenarios()
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no scenario %q: -list shows what there is", name)
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

// newBench starts storage and warms it up.
func newBench(ctx context.Context, app, dir string, sizes sizes, out io.Writer) (*bench, func() error, error) {
	if _, err := os.Stat(filepath.Join(app, "host.json")); err != nil {
		return nil, nil, fmt.Errorf("%s is no script root: make build stages it: %w", app, err)
	}
	log, err := os.Create(filepath.Join(dir, "bench.log"))
	if err != nil {
		return nil, nil, err
	}
	temp, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	storage, err := azurite.Start(ctx, azurite.Options{}) // in memory: saving stalls it
	if err != nil {
		return nil, nil, errors.Join(err, log.Close(), os.RemoveAll(temp))
	}
	b := &bench{storage: storage, app: app, log: log, out: out, temp: temp, sizes: sizes}
	stop := func() error { return errors.Join(storage.Stop(), os.RemoveAll(temp), log.Close()) }
	return b, stop, nil
}

// runAll runs scenarios until ctx ends. An error of one is its row, and does not keep the
// others from running.
func (b *bench) runAll(ctx context.Context, chosen []scenario) error {
	var failed []error
	for _, s := range chosen {
		fmt.Fprintf(b.out, "%-11s %s\n", s.name, s.about)
		began := time.Now()
		rows, err := s.run(ctx, b)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			rows = append(rows, result{Name: s.name, Error: err.Error()})
		}
		b.results = append(b.results, rows...)
		for _, r := range rows {
			fmt.Fprintf(b.out, "            %s\n", r.line())
		}
		fmt.Fprintf(b.out, "            (%s)\n", time.Since(began).Round(100*time.Millisecond))
	}
	return errors.Join(failed...)
}
