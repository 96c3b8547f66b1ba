// Package azurite runs Azurite, the emulator of Azure Storage, as a child process. Local runs, the
// benchmark and tests use the package. Azurite listens on loopback only.
package azurite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Account and key belong to Azurite's well-known development account. Both are public.
const (
	Account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	readyTimeout = 5 * time.Minute // a cold start takes seconds, and much longer on a busy machine
	stopTimeout  = 5 * time.Minute
)

// keepAliveSeconds is longer than a client keeps an idle connection. By default Azurite closes an
// idle connection after 5 s, and a request that a client sends at that moment is lost.
const keepAliveSeconds = "120"

// ErrNotInstalled is returned if the emulator's npm package is missing.
var ErrNotInstalled = errors.New("azurite is not installed: run make azurite")

// Options are the settings of one Azurite.
type Options struct {
	Dir       string // directory of the data, created if it is missing; empty = data in memory
	BlobPort  int    // 0 = a free port, as for QueuePort and TablePort
	QueuePort int
	TablePort int
	Log       io.Writer // gets the emulator's output; nil = the output is discarded
	Cert, Key string    // paths of PEM files, for https and the sign-in with tokens; empty = http
	Accounts  []string  // names of the accounts; empty = only the development account
}

// Ports are the ports that a process listens on.
type Ports struct {
	Blob, Queue, Table int
}

// Process is a running Azurite.
type Process struct {
	cmd   *exec.Cmd
	ports Ports
	done  chan struct{} // closed when the child has ended and its output has been read
	err   error         // result of the child; valid when done is closed
}

// Start runs Azurite, and returns when all three services listen. If ctx ends or readyTimeout
// passes before all three listen, Start fails. After the start, the end of ctx has no effect:
// Azurite runs until Stop. On Linux, Azurite also ends when the calling process ends. A later Start
// with the same Dir has the same data, and can use the same ports.
func Start(ctx context.Context, o Options) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	script, err := findScript()
	if err != nil {
		return nil, err
	}

	if _, err := exec.LookPath("node"); err != nil {
		return nil, fmt.Errorf("start azurite: Node 20 is needed (README.md, Quick start): %w", err)
	}

	out := newOutput(o.Log)
	p := &Process{cmd: exec.Command("node", o.commandArgs(script)...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if len(o.Accounts) > 0 {
		p.cmd.Env = append(os.Environ(), o.listAccounts())
	}

	if err := p.startChild(); err != nil {
		return nil, fmt.Errorf("start azurite: %w", err)
	}

	select {
	case p.ports = <-out.ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("start azurite: %w", out.startFailure(p.err))
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start azurite: %w", ctx.Err()), p.Stop())
	}
}

func (o Options) commandArgs(script string) []string {
	args := []string{
		script, "--disableTelemetry", "--skipApiVersionCheck", "--silent",
		"--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(o.BlobPort),
		"--queueHost", "127.0.0.1", "--queuePort", strconv.Itoa(o.QueuePort),
		"--tableHost", "127.0.0.1", "--tablePort", strconv.Itoa(o.TablePort),
	}

	for _, service := range []string{"blob", "queue", "table"} {
		args = append(args, "--"+service+"KeepAliveTimeout", keepAliveSeconds)
	}

	if o.Cert != "" {
		args = append(args, "--cert", o.Cert, "--key", o.Key, "--oauth", "basic")
	}

	if o.Dir == "" {
		return append(args, "--inMemoryPersistence")
	}

	return append(args, "--location", o.Dir)
}

// listAccounts returns the environment variable from which Azurite reads its accounts. Each account
// has the key of the development account.
func (o Options) listAccounts() string {
	var b strings.Builder
	for _, account := range o.Accounts {
		fmt.Fprintf(&b, "%s:%s;", account, key)
	}
	return "AZURITE_ACCOUNTS=" + b.String()
}

// Ports returns the ports on which the process listens.
func (p *Process) Ports() Ports { return p.ports }

// PID returns the process id of Azurite.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when Azurite has ended, by Stop or by itself.
func (p *Process) Done() <-chan struct{} { return p.done }

// ConnectionString returns the connection string of the development account with the ports of p.
// The addresses begin with http, even if Azurite was started with Cert and Key.
func (p *Process) ConnectionString() string { return p.ConnectionStringOf(Account) }

// ConnectionStringOf is ConnectionString for one of the accounts in Options.Accounts.
func (p *Process) ConnectionStringOf(account string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;"+
		"BlobEndpoint=http://127.0.0.1:%d/%s;QueueEndpoint=http://127.0.0.1:%d/%s;"+
		"TableEndpoint=http://127.0.0.1:%d/%s;",
		account, key, p.ports.Blob, account, p.ports.Queue, account, p.ports.Table, account)
}

// Stop sends SIGTERM, and waits until Azurite has saved its data and ended. After stopTimeout, Stop
// kills Azurite and returns an error. Stop can be called again.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil &&
		!errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop azurite: %w", err)
	}

	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()

	select {
	case <-p.done:
		return nil
	case <-timer.C:
		err := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(errors.New("stop azurite: killed, it did not end by itself"), err)
	}
}

// findScript returns the path of the emulator's script. It searches the working directory, and then
// each parent directory.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		path := filepath.Join(dir, "tools", "azurite", "node_modules", "azurite", "dist", "src",
			"azurite.js")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}

		if dir == filepath.Dir(dir) {
			return "", ErrNotInstalled
		}

		dir = filepath.Dir(dir)
	}
}
