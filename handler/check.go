package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/lane"
	"weir/internal/storage/azure"
)

const checkHelp = `Looks at settings, contracts, the host's file, storage and the CMS, and prints a line for each: ok, or what
is wrong and what to do. It changes nothing in storage and sends the CMS nothing: it only
opens a connection to it. With --json each is a line {"name", "ok", "detail", "wrong", "todo"}.
Ends with 1 when something is wrong.`

// checkTimeout bounds each check.
const checkTimeout = 10 * time.Second

func (s *shell) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "check", Short: "Say whether settings, storage and CMS are as they should be", Long: checkHelp, Args: cobra.NoArgs}
	addJSON(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return failed(s.check(cmd.Context(), asJSON), true) }
	return cmd
}

// finding is what a check came to. Nothing in wrong means ok.
type finding struct {
	name, detail string
	wrong        error
	todo         string // what to do about it
}

// errWrong is the failure of a check that found something.
var errWrong = errors.New("something is wrong")

func (s *shell) check(ctx context.Context, asJSON bool) error {
	p, wrong := prepare(s.env, slog.New(slog.DiscardHandler))
	if p.account != nil {
		defer p.account.Close()
	}
	findings := []finding{{name: "settings", wrong: wrong.settings, todo: "correct it in weir.yaml or in the environment"}}
	if p.contracts != nil || wrong.contracts != nil { // else weir.yaml could not be read
		findings = append(findings, finding{name: "contracts", detail: p.contractNames(), wrong: wrong.contracts, todo: "correct it under contracts: in weir.yaml"})
	}
	if wrong.settings == nil {
		findings = append(findings, p.checkCalendar(time.Now()))
	}
	findings = append(findings, p.checkHost(s.env), checkHostWatch(os.DirFS("/proc"), os.Getpid()))
	findings = append(findings, p.checkStorage(ctx, wrong.storage)...)
	findings = append(findings, p.checkCMS(ctx, wrong.cms))
	var err error
	for _, f := range findings {
		if f.wrong != nil {
			err = errWrong
		}
		if asJSON {
			err = errors.Join(err, s.document(f.wire()))
			continue
		}
		f.print(s)
	}
	return err
}

// print prints a finding. Several problems are as many lines.
func (f *finding) print(s *shell) {
	if f.wrong == nil {
		fmt.Fprintln(s.stdout, strings.TrimSpace(fmt.Sprintf("%-9s ok  %s", f.name, f.detail)))
		return
	}
	for line := range strings.SplitSeq(f.wrong.Error(), "\n") {
		fmt.Fprintf(s.stdout, "%-9s wrong: %s; %s\n", f.name, line, f.todo)
	}
}

// wireFinding is a finding as --json has it.
type wireFinding struct {
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Detail string   `json:"detail,omitempty"`
	Wrong  []string `json:"wrong,omitempty"`
	Todo   string   `json:"todo,omitempty"`
}

func (f *finding) wire() wireFinding {
	if f.wrong == nil {
		return wireFinding{Name: f.name, OK: true, Detail: f.detail}
	}
	return wireFinding{Name: f.name, Wrong: strings.Split(f.wrong.Error(), "\n"), Todo: f.todo}
}

// checkCalendar says whether anything is sent now, and when that changes.
func (p *Program) checkCalendar(now time.Time) finding {
	f := finding{name: "calendar", detail: "always open"}
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if closed, reason, until := p.calendar.At(now); closed {
		f.detail = fmt.Sprintf("closed (%s) until %s", reason, text(until))
	} else if next := p.calendar.Next(now); !next.IsZero() {
		f.detail = "open, closes at " + text(next)
	}
	return f
}

func (p *Program) contractNames() string {
	var names []string
	for _, c := range p.settings.Contracts {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

const (
	todoStorage = "see whether AzureWebJobsStorage names the right account, its key is valid or the identity has the roles, and its network rules let this machine in"
	notThereYet = "not there yet; the first start makes it"
)

// checkStorage looks at each part of the account, all at the same time.
func (p *Program) checkStorage(ctx context.Context, wrong error) []finding {
	if p.account == nil {
		if wrong == nil {
			wrong = errors.New("no account is named")
		}
		return []finding{{name: "storage", wrong: wrong, todo: "set AzureWebJobsStorage (or AzureWebJobsStorage__accountName), and WEIR_PREFIX where it is not weir"}}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	parts := []func(context.Context) finding{p.checkLanes, p.checkQueues, p.checkBlobs, p.checkClock}
	findings := make([]finding, len(parts))
	var all sync.WaitGroup
	for i, check := range parts {
		all.Go(func() { findings[i] = check(ctx) })
	}
	all.Wait()
	return findings
}

// checkLanes reads the table, and what it says of the number of lanes.
func (p *Program) checkLanes(ctx context.Context) finding {
	f := finding{name: "table", todo: todoStorage}
	recorded, err := lane.Recorded(ctx, p.account.Table())
	switch want := p.settings.Lanes; {
	case err != nil:
		return reached(f, err)
	case recorded == 0:
		f.detail = notThereYet
	case recorded != want:
		f.wrong = fmt.Errorf("storage has %d lanes, and the setting says %d", recorded, want)
		f.todo = fmt.Sprintf("set lanes: %d, or change storage by handler lanes %d", recorded, want)
	default:
		f.detail = fmt.Sprintf("%d lanes", recorded)
	}
	return f
}

func (p *Program) checkQueues(ctx context.Context) finding {
	tickets, err := p.account.Tickets().Length(ctx)
	poison, poisonErr := p.account.Poison().Length(ctx)
	return reached(finding{name: "queues", detail: fmt.Sprintf("%d tickets, %d given up by the host", tickets, poison), todo: todoStorage}, cmp.Or(err, poisonErr))
}

func (p *Program) checkBlobs(ctx context.Context) finding {
	_, err := p.account.Bodies().List(ctx, "none/", "")
	return reached(finding{name: "blobs", todo: todoStorage}, err)
}

func (p *Program) checkClock(ctx context.Context) finding {
	skew, err := p.account.Skew(ctx)
	f := reached(finding{name: "clock", detail: fmt.Sprintf("differs from storage's by about %s", skew.Abs().Round(time.Second)), todo: todoStorage}, err)
	if err == nil && skew.Abs() >= maxSkew {
		f.wrong = fmt.Errorf("storage's clock differs by about %s", skew.Round(time.Second))
		f.todo = "have this machine's clock set by NTP"
	}
	return f
}

// reached completes a finding. What is not there yet is made at the first start.
func reached(f finding, err error) finding {
	switch {
	case azure.Missing(err):
		f.detail = notThereYet
	case err != nil:
		f.wrong = short(err)
	}
	return f
}

// short is an error's first line: the SDK's run over many.
func short(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(strings.TrimSpace(line))
}

// checkCMS opens a connection to the CMS and sends nothing over it.
func (p *Program) checkCMS(ctx context.Context, wrong error) finding {
	f := finding{name: "cms", wrong: wrong, todo: "set delivery.url in weir.yaml, or what it is taken from"}
	if p.client == nil {
		if wrong == nil {
			f.wrong = errors.New("no address")
		}
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	through, target, err := route(p.settings.Delivery.URL)
	if err == nil {
		err = connect(ctx, through, target)
	}
	if err != nil {
		f.wrong, f.todo = short(err), "see whether delivery.url is right, the CMS runs, and this machine may reach it"
		return f
	}
	f.detail = "accepts connections at " + through.Host
	return f
}

// route says what to connect to in order to write to an address: its host, or the proxy
// that the environment names for it.
func route(address string) (through, target *url.URL, err error) {
	// What comes from a message stands in path and query, and is of no account here.
	address, _, _ = strings.Cut(address, "{")
	if target, err = url.Parse(address); err != nil {
		return nil, nil, err
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target})
	if err != nil || proxy != nil {
		return proxy, target, err
	}
	return target, target, nil
}

// connect opens a connection and closes it. The CMS's certificate is looked at where it is
// spoken to without a proxy between.
func connect(ctx context.Context, through, target *url.URL) error {
	port := through.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[through.Scheme]
	}
	if port == "" {
		port = "80"
	}
	address := net.JoinHostPort(through.Hostname(), port)
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = &net.Dialer{}
	if through == target && target.Scheme == "https" {
		dialer = &tls.Dialer{}
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
