// Command bench measures Weir on this machine, and compares it with baselines of the same run. It
// starts real handler processes under tools/funchost, which replaces the Functions host. The
// storage is Azurite in memory, and the CMS is the demo CMS. The CMS's own record shows whether a
// run was correct. The bench prints a table and writes build/bench.json. docs/performance.md
// explains the rows of the table.
//
// A missed target is shown in its row and does not change the exit code. The exit code is 1 after a
// failure: a message was lost or delivered twice, messages of a key came in the wrong order, or an
// error occurred.
//
// The flag -storage-delay has a list of delays. For each delay the bench makes a pass: it runs the
// scenarios while a proxy in front of Azurite delays each answer of storage. The proxy is in
// package delay. Answers to the baseline programs are delayed, too. Scenarios whose figures do not
// depend on the delay run in the last pass only.
//
// Each scenario has an Azurite of its own.
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

// scenario is one measurement, with one or several rows in the table. The function scenarios must
// list each scenario. If a scenario can run with small sizes, TestBench must list its rows.
type scenario struct {
	name  string // name in the flag -only
	about string // description for -list
	run   func(context.Context, *bench) ([]result, error)
	when  passRule
}

// passRule selects the passes in which a scenario runs. The bench makes one pass for each delay of
// storage.
type passRule int

const (
	inEachPass passRule = iota // for figures that depend on the delay
	inLastPass                 // for counts and bounds that do not depend on the delay
)

// scenarios returns all scenarios, in the order in which they run and appear in the table.
func scenarios() []scenario {
	return []scenario{
		{"serial", "a burst on one lane, and its storage transactions", runSerial, inEachPass},
		{"lanes", "the same burst on eight lanes", runLanes, inEachPass},
		{"chains", "messages that take three requests each, also with tokens of 2 s", runChains,
			inEachPass},
		{"fast", "what one lane delivers to a CMS that takes no time", runFast, inEachPass},
		{"accept", "how soon and how often a message is accepted", runAccept, inEachPass},
		{"posts", "what posts of 1 KiB, 100 KiB and 1 MiB cost", runPosts, inEachPass},
		{"consume", "how often weir consume files a message of a queue, against posts", runConsume,
			inEachPass},
		{"batch", "how often a part of a batch is filed, against posts", runBatch, inEachPass},
		{"files", "how often a file of the inbox is taken, against posts", runFiles, inEachPass},
		{"cpu", "what a message costs the handler's process", runCPU, inLastPass},
		{"logs", "what a burst and a trickle leave in the host's log", runLogs, inLastPass},
		{"trickle", "one message a second: cost, and time to the CMS", runTrickle, inEachPass},
		{"two", "the same with two instances, beside a queue listener", runTwo, inEachPass},
		{"pairburst", "a burst on one lane that two instances accept, beside a queue listener",
			runPairBurst, inEachPass},
		{"pairidle", "two instances at rest, and the first message after, beside a queue listener",
			runPairIdle, inEachPass},
		{"back", "the CMS is back after 20 s of 503: how soon the first write comes", runBack,
			inEachPass},
		{"idle", "what a system at rest costs, and how soon it wakes", runIdle, inEachPass},
		{"backlog", "a long backlog against a short one", runBacklog, inEachPass},
		{"takeover", "a holder ends while another instance lives", runTakeover, inEachPass},
		{"due", "messages with a due time: how late they come", runDue, inEachPass},
		{"retry", "first attempts that fail: how late the second ones come", runRetry, inEachPass},
		{"scheduled", "a lane's other traffic beside many scheduled messages", runScheduled,
			inEachPass},
		{"recurring", "four instances over the same schedules: none missed, none doubled",
			runRecurring, inEachPass},
		{"supersede", "bursts of edits, newer replacing older", runSupersede, inEachPass},
		{"duelane", "one lane with 10, then 20 due a second: how late they come", runDueLane,
			inEachPass},
		{"duemoment", "1,000, then 2,000 due at one moment, with plain messages beside",
			runDueMoment, inEachPass},
		{"everysecond", "300 schedules of one second: the lane goes on", runEverySecond,
			inLastPass},
		{"refused", "400 messages that the CMS refuses, in front of 50 good ones", runRefused,
			inLastPass},
		{"aside", "memory: 20,000 messages behind a blocked key, 1,000 of 200 KiB due at once",
			runAside, inLastPass},
		{"memory", "memory: large posts, searches for a text, and large posts while storage hangs",
			runMemory, inLastPass},
		{"waits", "posts beside 3,000 answers that wait; the cost of a status in a backlog",
			runWaits, inLastPass},
		{"retention", "how fast old messages are removed, and how many transactions that takes",
			runRetention, inLastPass},
		{"sweep", "one sweep over 256 lanes", runSweepLanes, inLastPass},
		{"tickets", "64 busy lanes on 1 and on 4 instances: how long the queue gets", runTickets,
			inLastPass},
		{"groups", "Flex Consumption's groups: a burst moves; trickle and due messages on both instances", runGroups,
			inLastPass},
		{"hang", "storage that hangs: how soon posts are refused, how long a lane stands still",
			runHang, inLastPass},
		{"coldstart", "from the start of a handler to its first 202", runColdStart, inEachPass},
		{"serve", "weir serve on a folder: start, acceptance, burst, memory", runServe, inLastPass},
		{"recipe", "the usual recipe, as the baseline", runRecipeScenario, inEachPass},
	}
}

// bench is the state that all scenarios share.
type bench struct {
	// openStorage returns the storage of a scenario, and a function that ends its use. It starts an
	// Azurite (startAzurite), except in tests, whose scenarios share one.
	openStorage func(context.Context) (*azurite.Process, func() error, error)
	storage     *azurite.Process // storage of the running scenario
	delay       time.Duration    // delay of storage's answers in this pass; 0 = none
	// storage for handlers and hosts: delays answers, refuses some requests; nil = no proxy
	farStorage *delay.Proxy
	// storage for baseline programs: the same delay, refuses nothing; nil = no proxy
	calmStorage *delay.Proxy
	app         string    // folder of the app (script root)
	before      string    // folder of another build, for scenario posts; empty = none
	log         io.Writer // gets the output of hosts and handlers
	out         io.Writer // gets the lines about progress
	temp        string    // folder that the bench removes at its end
	// folder for the handlers' CPU profiles; empty = the handlers write none
	profile string
	sizes   sizes
	results []result
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if was, err := runAsYardstick(ctx); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}

	only := flag.String("only", "", "names of scenarios, with commas between; empty = all")
	list := flag.Bool("list", false, "list the scenarios and end")
	app := flag.String("app", filepath.Join("build", "app"), "script root, as make build stages it")
	file := flag.String("json", filepath.Join("build", "bench.json"), "file for the rows")
	delays := flag.String("storage-delay", "0s",
		"median delays of storage's answers, with commas between; each delay is a pass of its own")
	before := flag.String("before", "",
		"script root of another build, with which scenario posts compares; empty = none")
	profile := flag.String("profile", "",
		"folder for the CPU profiles of handlers that make profile has built (scenario cpu only)")
	sizes := fullSizes
	flag.IntVar(&sizes.backlog.long, "long", sizes.backlog.long,
		"messages of the long backlog on Azurite")
	flag.Parse()

	if *list {
		for _, s := range scenarios() {
			fmt.Printf("%-11s %s\n", s.name, s.about)
		}
		return
	}

	folders := buildFolders{app: *app, before: *before, profile: *profile}
	if err := runBench(ctx, *only, *delays, *file, folders, sizes); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// buildFolders has the folders of the flags -app, -before and -profile.
type buildFolders struct{ app, before, profile string }

func runBench(ctx context.Context, only, delays, file string, folders buildFolders,
	sizes sizes) error {
	chosen, err := chooseScenarios(only)
	if err != nil {
		return err
	}

	passes, err := readDelays(delays)
	if err != nil {
		return err
	}

	b, stop, err := newBench(folders.app, filepath.Dir(file), sizes, os.Stdout)
	if err != nil {
		return err
	}

	b.profile, b.before = folders.profile, folders.before
	err = b.runPasses(ctx, chosen, passes)
	printTable(os.Stdout, b.results)

	return errors.Join(err, writeJSON(file, b.results), stop())
}

// compareWithRecipe sets the baseline of the row with Weir's transactions per message. The baseline
// is the number of transactions per message in the scenario "recipe". If one of the two rows is
// missing, compareWithRecipe changes nothing.
func compareWithRecipe(results []result) {
	at := func(name string) int {
		return slices.IndexFunc(results,
			func(r result) bool { return r.Name == name && r.Error == "" })
	}
	if weir, usual := at(serialTransactions), at(recipeTransactions); weir >= 0 && usual >= 0 {
		results[weir] = results[weir].withBaseline(results[usual].Value)
	}
}

func chooseScenarios(only string) ([]scenario, error) {
	all := scenarios()
	if only == "" {
		return all, nil
	}

	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no scenario %q: -list shows all", name)
		}
	}

	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }),
		nil
}

// newBench makes a log in dir, and makes a temporary folder. The returned function removes the
// temporary folder and closes the log.
func newBench(app, dir string, sizes sizes, out io.Writer) (*bench, func() error, error) {
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

	b := &bench{openStorage: startAzurite, app: app, log: log, out: out, temp: temp, sizes: sizes}
	stop := func() error { return errors.Join(os.RemoveAll(temp), log.Close()) }

	return b, stop, nil
}

// startAzurite starts an Azurite that keeps its data in memory, because it would stall while it
// saves data to disk. In memory it searches the whole table at each read of a range, so the rows of
// earlier scenarios would slow down the later ones: each scenario has an Azurite of its own.
func startAzurite(ctx context.Context) (*azurite.Process, func() error, error) {
	storage, err := azurite.Start(ctx, azurite.Options{})
	if err != nil {
		return nil, nil, err
	}
	return storage, storage.Stop, nil
}

// runScenarios runs scenarios until ctx ends, and appends their rows to the results. If a scenario
// fails, its rows and a row with the error are appended, and the next scenario runs.
func (b *bench) runScenarios(ctx context.Context, chosen []scenario) error {
	var failed []error
	for _, s := range chosen {
		fmt.Fprintf(b.out, "%-11s %s\n", s.name, s.about)
		began := time.Now()
		rows, err := b.runScenario(ctx, s)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}

		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			rows = append(rows, result{Name: s.name, Error: err.Error()})
		}

		b.results = append(b.results, rows...)
		for _, r := range rows {
			fmt.Fprintf(b.out, "            %s\n", r.formatLine())
		}

		fmt.Fprintf(b.out, "            (%s)\n", time.Since(began).Round(100*time.Millisecond))
	}

	return errors.Join(failed...)
}

// runScenario opens storage, runs one scenario, and closes storage again.
func (b *bench) runScenario(ctx context.Context, s scenario) (rows []result, err error) {
	storage, closeStorage, err := b.openStorage(ctx)
	if err != nil {
		return nil, err
	}

	b.storage = storage
	defer func() {
		b.storage = nil
		err = errors.Join(err, closeStorage())
	}()

	endDelay, err := b.delayStorage(ctx)
	if err != nil {
		return nil, err
	}

	rows, err = s.run(ctx, b)

	return rows, errors.Join(err, endDelay())
}
