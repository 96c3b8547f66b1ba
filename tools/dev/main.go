// Command dev starts the whole system on this machine: Azurite, the demo CMS, and the Functions
// host with the handler. It prints a line when the stage of a message changes. The logs of the
// started programs go to build/run.log. Ctrl-C stops the system.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
)

type devOptions struct {
	port, cmsPort, storagePort int
	cms, prefix                string
	verbose                    bool
	connection                 string // connection string of storage; set when storage runs
	contracts                  string // names of the contracts
	hasSample                  bool   // the contracts accept sampleMessage
}

const (
	defaultPort    = 7071
	defaultCMSPort = 7072
	readyTimeout   = 60 * time.Second
)

var errLocked = errors.New("another process has the lock")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}

	if err == nil {
		err = runSystem(ctx, o)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "make run STORAGE=azurite:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (devOptions, error) {
	o := devOptions{prefix: cmp.Or(os.Getenv("WEIR_PREFIX"), "weir")}
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	flags.IntVar(&o.port, "port", defaultPort, "port of Weir")
	flags.IntVar(&o.cmsPort, "cms-port", defaultCMSPort, "port of the demo CMS")
	flags.IntVar(&o.storagePort, "storage-port", 10000, "the first of three ports of Azurite")
	flags.StringVar(&o.cms, "cms", "", "address of another CMS; the demo CMS is not started then")
	flags.BoolVar(&o.verbose, "verbose", false, "print the programs' logs, too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}

	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q; see --help", flags.Arg(0))
	}

	for _, port := range []int{o.port, o.cmsPort, o.storagePort} {
		if port < 1 || port > 65533 {
			return o, fmt.Errorf("port %d is not 1 to 65533", port)
		}
	}

	if o.cms == "" {
		o.cms = fmt.Sprintf("http://127.0.0.1:%d/api/content", o.cmsPort)
		return o, nil
	}

	o.cmsPort = 0
	if u, err := url.Parse(o.cms); err != nil || u.Host == "" ||
		u.Scheme != "http" && u.Scheme != "https" {
		return o, fmt.Errorf("--cms is %q, and must be an absolute http or https address", o.cms)
	}

	return o, nil
}

// runSystem starts all programs, and stops them when ctx ends. If storage, the CMS or the host ends
// by itself, runSystem stops the other programs and returns an error.
func runSystem(ctx context.Context, o devOptions) (err error) {
	lock, err := lockFolder()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := o.checkPortsFree(); err != nil {
		return err
	}

	log, err := openLog(o.verbose)
	if err != nil {
		return err
	}
	defer log.Close()
	storage, err := azurite.Start(ctx,
		azurite.Options{Dir: filepath.Join("build", "azurite"), BlobPort: o.storagePort,
			QueuePort: o.storagePort + 1, TablePort: o.storagePort + 2})
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	defer storage.Stop()
	cms := &childProcess{done: make(chan struct{})}
	if o.cmsPort != 0 {
		if cms, err = startChild("cms", log, nil, "build/tools/democms", "--port", fmt.Sprint(o.cmsPort)); err != nil {
			return err
		}
		defer cms.stopChild()
	}

	o.connection = storage.ConnectionString()
	env := o.environment()
	if o.contracts, err = checkSettings(ctx, env); err != nil {
		return ignoreCancel(ctx, err)
	}

	o.hasSample = isSampleAccepted(ctx, env)
	host, err := startHost(log, append(env, "FUNCTIONS_WORKER_RUNTIME=custom"), o.port)
	if err != nil {
		return err
	}
	defer host.stopChild()
	failing, err := awaitReady(ctx, host, o.weir())
	if err != nil {
		return ignoreCancel(ctx, o.explainLanes(err))
	}

	tail, err := startTail(o, log)
	if err != nil {
		return err
	}
	defer tail.stopChild()
	o.printWelcome()

	if failing != "" {
		fmt.Printf("Weir does not work yet: %s. It stays up, so that you can run its commands.\n",
			failing)
	}

	select {
	case <-ctx.Done():
		o.printAddresses()
		fmt.Println("Stopped. make run STORAGE=azurite starts it again, with the messages of before; " +
			"make clean removes them.")
		return nil

	case <-storage.Done():
		return errors.New("storage (Azurite) has ended; see build/run.log")
	case <-cms.done:
		return errors.New("the demo CMS has ended; see build/run.log")
	case <-host.done:
		return fmt.Errorf("the host has ended: %s; see build/run.log", describeEnd(host.lastLines))
	}
}

// lockFolder prevents a second system in this folder. Two storage emulators would overwrite each
// other's data in build/azurite.
func lockFolder() (io.Closer, error) {
	lock, err := openLocked(filepath.Join("build", "run.lock"))
	if errors.Is(err, errLocked) {
		return nil, errors.New(
			"the system of this folder is running already, and uses the data in build/azurite: " +
				"stop it first, or clone the repository into another folder")
	}
	return lock, err
}

// ignoreCancel returns nil if ctx has ended, because Ctrl-C or SIGTERM has then caused err.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// environment returns the variables that the handler and its commands need.
func (o devOptions) environment() []string {
	return []string{"AzureWebJobsStorage=" + o.connection, "WEIR_PREFIX=" + o.prefix,
		"WEIR_CMS_URL=" + o.cms}
}

// commandLine returns a line for a shell, which runs a command of the handler on this system.
func (o devOptions) commandLine(command string) string {
	line := ""
	for _, variable := range append(o.environment(), "WEIR_CONFIG="+os.Getenv("WEIR_CONFIG")) {
		if name, value, _ := strings.Cut(variable, "="); value != "" {
			line += name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "' "
		}
	}
	return line + "build/weir " + command
}

// explainLanes adds to an error about the number of lanes, or about the folding of keys, how to
// change it. Storage runs only while this program runs.
func (o devOptions) explainLanes(err error) error {
	former, command := "", ""
	switch {
	case strings.Contains(err.Error(), "the number of lanes differs"):
		former, command = "number", "lanes N"
	case strings.Contains(err.Error(), "the folding of keys differs"):
		former, command = "folding", "lanes --fold RULES"
	default:
		return err
	}

	return fmt.Errorf("%w\nTo change storage, set the former %s, run make run STORAGE=azurite, and run in "+
		"another terminal:\n  %s\n"+
		"Or remove the stored data: make clean", err, former, o.commandLine(command))
}

func (o devOptions) weir() string { return fmt.Sprintf("http://127.0.0.1:%d/api", o.port) }

// checkPortsFree returns an error that names the first port that is in use.
func (o devOptions) checkPortsFree() error {
	for _, p := range []struct {
		port int
		name string
	}{{o.storagePort, "STORAGE_PORT"}, {o.storagePort + 1, "STORAGE_PORT"},
		{o.storagePort + 2, "STORAGE_PORT"},
		{o.cmsPort, "CMS_PORT"}, {o.port, "PORT"}} {
		if p.port == 0 {
			continue
		}

		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
		if err != nil {
			return fmt.Errorf(
				"port %d is taken: is the system running already? %s=… takes another port",
				p.port, p.name)
		}

		l.Close()
	}

	return nil
}

// lineLog writes build/run.log. Safe for concurrent use.
type lineLog struct {
	mu   sync.Mutex
	file *os.File
	copy io.Writer // gets a copy of each line; nil = no copy
}

func openLog(verbose bool) (*lineLog, error) {
	f, err := os.Create(filepath.Join("build", "run.log"))
	if err != nil {
		return nil, err
	}

	l := &lineLog{file: f}
	if verbose {
		l.copy = os.Stdout
	}

	return l, nil
}

func (l *lineLog) printLine(name, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.file, "[%s] %s\n", name, line)
	if l.copy != nil {
		fmt.Fprintf(l.copy, "[%s] %s\n", name, line)
	}
}

// Close closes the file.
func (l *lineLog) Close() { l.file.Close() }

// childProcess is a program that this program has started.
type childProcess struct {
	cmd       *exec.Cmd
	done      chan struct{}
	lastLines []string // the last lines of output that are not empty; valid after done is closed
}

// keptLines is the largest number of childProcess.lastLines.
const keptLines = 20

// startTail starts "weir tail", which prints a line when the stage of a message changes.
func startTail(o devOptions, log *lineLog) (*childProcess, error) {
	cmd := exec.Command(handlerPath, "tail", "--url", o.weir(), "--lines", "0", "--interval", "1s")
	cmd.Stdout = os.Stdout
	return startCommand("tail", log.printLine, cmd, &cmd.Stderr)
}

// startHost starts the host. It also prints a line if a handler has ended and was started again.
func startHost(log *lineLog, env []string, port int) (*childProcess, error) {
	cmd := exec.Command("build/tools/funchost", "--script-root", "build/app", "--port",
		fmt.Sprint(port), "--development")
	cmd.Env = append(os.Environ(), env...)
	var seen restarts
	return startCommand("host", func(name, line string) {
		log.printLine(name, line)
		if text := seen.notice(line); text != "" {
			fmt.Println(text)
		}
	}, cmd, &cmd.Stdout, &cmd.Stderr)
}

// startChild starts a program whose whole output goes to the log.
func startChild(name string, log *lineLog, env []string, path string,
	args ...string) (*childProcess, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	return startCommand(name, log.printLine, cmd, &cmd.Stdout, &cmd.Stderr)
}

// startCommand starts a command. It calls printLine with each line of the given outputs, which are
// fields of cmd.
func startCommand(name string, printLine func(name, line string), cmd *exec.Cmd,
	outputs ...*io.Writer) (*childProcess, error) {
	cmd.SysProcAttr = childAttributes()
	out, in := io.Pipe()
	for _, output := range outputs {
		*output = in
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	c := &childProcess{cmd: cmd, done: make(chan struct{})}
	var copied sync.WaitGroup
	copied.Go(func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)

		for lines.Scan() {
			printLine(name, lines.Text())
			if line := strings.TrimSpace(lines.Text()); line != "" {
				c.lastLines = append(c.lastLines[max(0, len(c.lastLines)-keptLines+1):], line)
			}
		}

		io.Copy(io.Discard, out)
	})

	go func() {
		cmd.Wait()
		in.Close()
		copied.Wait()
		close(c.done)
	}()

	return c, nil
}

// stopLimit is the time after which stopChild kills a child. The host needs up to 10 s to stop,
// because it waits for queue and timer invocations that are under way.
const stopLimit = 15 * time.Second

// stopChild sends SIGTERM to a child, and waits for its end. After stopLimit it kills the child.
func (c *childProcess) stopChild() {
	if c.cmd.Process.Signal(syscall.SIGTERM) != nil && runtime.GOOS == "windows" {
		killGroup(c.cmd.Process) // Windows has no SIGTERM
	}

	select {
	case <-c.done:
	case <-time.After(stopLimit):
		killGroup(c.cmd.Process)
		<-c.done
	}
}

// awaitReady waits until the health of Weir is good. If the host answers in time, and the health is
// not good, awaitReady returns the checks that fail: a change of the number of lanes that was
// interrupted, for example, ends only by a command on the running storage.
func awaitReady(ctx context.Context, host *childProcess, weir string) (failing string, err error) {
	limited, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	for {
		if status, _, err := get(limited, weir+"/health"); err == nil && status == http.StatusOK {
			return "", nil
		}

		select {
		case <-limited.Done():
			return describeFailing(ctx, weir)
		case <-host.done:
			return "", fmt.Errorf(
				"the host ended before it was ready: %s; build/run.log has its output",
				describeEnd(host.lastLines))

		case <-time.After(100 * time.Millisecond):
		}
	}
}

// describeFailing returns the checks of Weir that fail.
func describeFailing(ctx context.Context, weir string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var checks struct {
		Checks map[string]struct {
			OK     bool   `json:"ok"`
			Detail string `json:"detail"`
		} `json:"checks"`
	}

	_, body, err := get(limited, weir+"/checks")
	if err == nil {
		err = json.Unmarshal(body, &checks)
	}

	if err != nil {
		return "", fmt.Errorf("the host did not become ready at %s/health", weir)
	}

	var failing []string
	for _, name := range slices.Sorted(maps.Keys(checks.Checks)) {
		if c := checks.Checks[name]; !c.OK {
			failing = append(failing, name+": "+c.Detail)
		}
	}

	return strings.Join(failing, "; "), nil
}

// get returns the status and the body of an answer.
func get(ctx context.Context, address string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))

	return resp.StatusCode, body, err
}

func (o devOptions) printWelcome() {
	fmt.Print("\nWeir is running.\n")
	o.printAddresses()
	fmt.Printf(`%s

and then curl the Location of the answer. %sCtrl-C ends all.
To check the settings and the storage of this system, or to change its number of lanes (lanes N):

  %s

A line follows for each message whose stage changes; the programs' logs are in build/run.log.

`, o.describeSample(), o.describeDemo(), o.commandLine("check"))
}

// describeSample returns a command that posts a message which the contracts accept.
func (o devOptions) describeSample() string {
	post := fmt.Sprintf("  curl -i -X POST %s/messages -H 'Content-Type: application/xml' \\\n    ",
		o.weir())
	if o.hasSample {
		return "Try:\n\n" + post + "-d '" + sampleMessage + "'"
	}
	return fmt.Sprintf("Post a message of your contracts (%s):\n\n%s--data-binary @message.xml",
		o.contracts, post)
}

// describeDemo returns a sentence with the command "make demo" for the ports in o. If this program
// does not start the demo CMS, describeDemo returns "", because "make demo" reads the statistics of
// the demo CMS.
func (o devOptions) describeDemo() string {
	if o.cmsPort == 0 {
		return ""
	}

	command := "make demo"
	if o.port != defaultPort {
		command += fmt.Sprintf(" PORT=%d", o.port)
	}

	if o.cmsPort != defaultCMSPort {
		command += fmt.Sprintf(" CMS_PORT=%d", o.cmsPort)
	}

	return "In another terminal: " + command + ". "
}

func (o devOptions) printAddresses() {
	fmt.Printf(`
  messages   %[1]s/messages   (POST)
  health     %[1]s/health
  operator   %[1]s/dashboard  (the page; open it in a browser)
`, o.weir())

	if o.cmsPort != 0 {
		fmt.Printf("  demo CMS   http://127.0.0.1:%d/               (items as a page, and faults to try)\n\n",
			o.cmsPort)
	} else {
		fmt.Printf("  CMS        %s\n\n", o.cms)
	}
}
