// Package realbroker runs a RabbitMQ of Debian's package rabbitmq-server, for tests and tools: a node of its own on
// free loopback ports, with its data in a folder of its own. It uses no service of the machine.
package realbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/freeport"
)

const (
	readyTimeout = 90 * time.Second // a busy machine starts several brokers at once
	stopTimeout  = 30 * time.Second
	lookInterval = 100 * time.Millisecond
)

// Broker is a node of RabbitMQ, with an Erlang port mapper of its own. URL and Address are safe for concurrent use,
// the other methods are not.
type Broker struct {
	dir  string // folder of the node's data, settings and cookie
	log  io.Writer
	port int
	env  []string

	mapper, node *child
}

// Start starts a node with its data in dir, and returns when the node accepts connections. Its output goes to log.
func Start(ctx context.Context, dir string, log io.Writer) (*Broker, error) {
	return startNode(ctx, dir, log, "")
}

// startNode does the same as Start, with further lines of rabbitmq.conf.
func startNode(ctx context.Context, dir string, log io.Writer, more string) (*Broker, error) {
	b := &Broker{dir: dir, log: log}
	ports := [3]int{}
	for i := range ports {
		port, err := freeport.Pick()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	b.port = ports[0]
	config := filepath.Join(dir, "rabbitmq.conf")
	settings := fmt.Sprintf("listeners.tcp.local = 127.0.0.1:%d\nlog.console = true\nlog.file = false\n"+
		"log.console.level = warning\ndisk_free_limit.absolute = 50MB\n%s", b.port, more)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	b.env = append(os.Environ(),
		"HOME="+dir, // the node writes its cookie there
		"RABBITMQ_NODENAME=weir"+strconv.Itoa(b.port)+"@localhost",
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"),
		"RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "enabled_plugins"),
		"RABBITMQ_CONFIG_FILE="+config,
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "none"),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(ports[1]),
		"ERL_EPMD_PORT="+strconv.Itoa(ports[2]), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none")
	// Without a port mapper the node would start one, which outlives the node.
	mapper := exec.Command("epmd", "-port", strconv.Itoa(ports[2]), "-address", "127.0.0.1")
	var err error
	if b.mapper, err = b.startChild(mapper); err != nil {
		return nil, fmt.Errorf("%w: apt-get install -y --no-install-recommends rabbitmq-server", err)
	}
	if err := b.Restart(ctx); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

// URL returns the address of the broker for AMQP, with the user guest.
func (b *Broker) URL() string { return "amqp://guest:guest@" + b.Address() + "/" }

// Address returns the host and port of the broker.
func (b *Broker) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Restart starts the node with its data after StopNode or Kill, and returns when the node accepts connections.
func (b *Broker) Restart(ctx context.Context) error {
	path, err := findProgram("rabbitmq-server")
	if err != nil {
		return err
	}
	if b.node, err = b.startChild(exec.Command(path)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		conn, err := amqp.Dial(b.URL())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.node.done:
			return fmt.Errorf("the broker ended before it was ready: %w", errors.Join(b.node.err, err))
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w", errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// findProgram returns the path of a program of RabbitMQ. Debian's package puts other programs with the same names
// into PATH. Those programs change to the user rabbitmq, who could not write to the node's folder.
func findProgram(name string) (string, error) {
	paths, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/" + name)
	if err != nil || len(paths) == 0 {
		return "", errors.New(name + " is missing: apt-get install -y --no-install-recommends rabbitmq-server")
	}
	return paths[0], nil
}

// LimitMemory sets the share of the machine's memory that the node may use before it raises its memory alarm. With 0
// the alarm is on: the node reads nothing from connections that publish.
func (b *Broker) LimitMemory(ctx context.Context, share float64) error {
	return b.runControl(ctx, "set_vm_memory_high_watermark", strconv.FormatFloat(share, 'f', -1, 64))
}

// runControl runs a command of rabbitmqctl at the node.
func (b *Broker) runControl(ctx context.Context, arguments ...string) error {
	path, err := findProgram("rabbitmqctl")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.env, b.dir, b.log, b.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("rabbitmqctl %s: %w", arguments[0], err)
	}
	return nil
}

// StopNode ends the node in order. Its data stays.
func (b *Broker) StopNode() error { return b.node.end(syscall.SIGTERM) }

// Kill has the node write its definitions to disk, and ends the node by SIGKILL. Its data stays. RabbitMQ keeps
// definitions in a write cache for two seconds. When version 3.10 was killed within these two seconds, it lost a
// durable queue although it had confirmed the declaration.
func (b *Broker) Kill(ctx context.Context) error {
	if err := b.runControl(ctx, "eval", "ok = disk_log:sync(latest_log)."); err != nil {
		return err
	}
	return b.node.end(syscall.SIGKILL)
}

// Stop ends the node and its port mapper.
func (b *Broker) Stop() error {
	return errors.Join(b.node.end(syscall.SIGKILL), b.mapper.end(syscall.SIGTERM))
}

// child is a process with a process group of its own. The kernel sends SIGTERM to the child when this process dies.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // result of Wait; read it after done is closed
}

// startChild starts a child from a goroutine that keeps its thread until the child has ended. Linux sends the
// parent-death signal when the thread that started the child ends, even if this process lives on.
func (b *Broker) startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.env, b.dir, b.log, b.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = time.Second // children of the child keep its output open; Wait does not wait for them
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	return c, <-started
}

// end sends a signal to the child and its group, and waits until the child has ended. It kills a child that runs for
// longer than stopTimeout. A second call has no effect.
func (c *child) end(signal syscall.Signal) error {
	if c == nil || c.cmd.Process == nil {
		return nil
	}
	group := -c.cmd.Process.Pid
	defer syscall.Kill(group, syscall.SIGKILL)
	if err := syscall.Kill(group, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		err := syscall.Kill(group, syscall.SIGKILL)
		<-c.done
		return errors.Join(fmt.Errorf("killed, because it did not end within %s", stopTimeout), err)
	}
}
