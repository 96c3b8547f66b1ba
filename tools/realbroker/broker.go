// Package realbroker runs RabbitMQ for tests and tools, from Debian's package rabbitmq-server. Each
// broker is a separate node on free loopback ports, with its data in its own folder. If the machine
// also runs RabbitMQ as a system service, the brokers do not use this service.
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
	readyTimeout = 5 * time.Minute // long, because a busy machine may start several brokers at once
	stopTimeout  = 5 * time.Minute
	lookInterval = 100 * time.Millisecond
)

// Broker is a RabbitMQ node with its own Erlang port mapper. URL and Address are safe for
// concurrent use, the other methods are not.
type Broker struct {
	dir  string // folder of the node's data, settings and cookie
	log  io.Writer
	port int
	env  []string

	mapper, node *child
}

// Start starts a node with its data in dir, and returns when the node accepts connections. The
// node's output goes to log.
func Start(ctx context.Context, dir string, log io.Writer) (*Broker, error) {
	return startNode(ctx, dir, log, "")
}

// startNode implements Start. It also appends the lines in "more" to the node's rabbitmq.conf.
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

	// Without a running port mapper, the node would start a port mapper that outlives the node.
	mapper := exec.Command("epmd", "-port", strconv.Itoa(ports[2]), "-address", "127.0.0.1")
	var err error
	if b.mapper, err = b.startChild(mapper); err != nil {
		return nil, fmt.Errorf("%w: apt-get install -y --no-install-recommends rabbitmq-server",
			err)
	}

	if err := b.Restart(ctx); err != nil {
		b.Stop()
		return nil, err
	}

	return b, nil
}

// URL returns the broker's address for AMQP, with the user guest.
func (b *Broker) URL() string { return "amqp://guest:guest@" + b.Address() + "/" }

// Address returns the broker's host and port.
func (b *Broker) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Restart starts the node after StopNode or Kill, with the data that the node had. It returns when
// the node accepts connections.
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
			return fmt.Errorf("the broker ended before it was ready: %w",
				errors.Join(b.node.err, err))
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w", errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// findProgram returns the path of a program in RabbitMQ's own folder. The programs with the same
// names in PATH change to the user rabbitmq, who cannot write to the node's folder.
func findProgram(name string) (string, error) {
	paths, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/" + name)
	if err != nil || len(paths) == 0 {
		return "", errors.New(name +
			" is missing: apt-get install -y --no-install-recommends rabbitmq-server")
	}
	return paths[0], nil
}

// LimitMemory sets the share of the machine's memory at which the node raises its memory alarm.
// With the share 0 the alarm is always on: the node reads nothing from connections that publish.
func (b *Broker) LimitMemory(ctx context.Context, share float64) error {
	return b.runControl(ctx, "set_vm_memory_high_watermark",
		strconv.FormatFloat(share, 'f', -1, 64))
}

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

// StopNode shuts the node down by SIGTERM. The node's data stays.
func (b *Broker) StopNode() error { return b.node.end(syscall.SIGTERM) }

// Kill makes the node write its definitions, such as queues, to disk, and then ends the node by
// SIGKILL. The node's data stays.
//
// RabbitMQ keeps new definitions in a write cache for two seconds. Version 3.10, killed within
// these two seconds, lost a durable queue whose declaration it had confirmed.
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

// child is a child process with its own process group. The kernel sends SIGTERM to the child when
// its parent process dies.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // result of Wait; read it after done is closed
}

// startChild starts a child from a goroutine that stays on one thread until the child has ended. If
// that thread ended earlier, Linux would send the signal Pdeathsig to the child, although this
// process lives on.
func (b *Broker) startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.env, b.dir, b.log, b.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = time.Second // limits the wait for grandchildren, which keep the output open
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

// end sends a signal to the child's process group, and waits until the child has ended. If that
// takes longer than stopTimeout, end kills the group and returns an error. A second call has no
// effect.
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
