// Command dev starts the whole system on this machine: Azurite, the demo CMS, and the
// Functions host with the handler. Ctrl-C ends all of it. It leaves no process behind,
// even when it is killed: each child dies with it.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
)

// The ports a developer knows by heart: Azurite's own, func's, and the demo CMS's next to it.
const (
	blobPort, queuePort, tablePort = 10000, 10001, 10002
	hostPort, cmsPort              = 7071, 7072
)

const readyTimeout = 60 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runSystem(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

func runSystem(ctx context.Context) error {
	if err := checkPortsFree(); err != nil {
		return err
	}
	data := filepath.Join("build", "azurite")
	storage, err := azurite.Start(ctx, azurite.Options{Dir: data, BlobPort: blobPort, QueuePort: queuePort,
		TablePort: tablePort})
	if err != nil {
		return err
	}
	defer storage.Stop()
	cms, err := startChild("cms", nil, "build/tools/democms", "--port", fmt.Sprint(cmsPort))
	if err != nil {
		return err
	}
	defer cms.stopChild()
	env := []string{
		"AzureWebJobsStorage=" + storage.ConnectionString(), "FUNCTIONS_WORKER_RUNTIME=custom", "WEIR_PREFIX=weir",
		fmt.Sprintf("WEIR_CMS_URL=http://127.0.0.1:%d/api/content", cmsPort),
	}
	host, err := startChild("host", env, "build/tools/funchost", "--script-root", "build/app", "--port",
		fmt.Sprint(hostPort), "--development")
	if err != nil {
		return err
	}
	defer host.stopChild()
	if err := awaitReady(ctx, host, fmt.Sprintf("http://127.0.0.1:%d/api/health", hostPort)); err != nil {
		return err
	}
	printWelcome()
	select {
	case <-ctx.Done():
		fmt.Println("\nstopping")
		return nil
	case <-storage.Done():
		return errors.New("storage (Azurite) has ended")
	case <-cms.done:
		return errors.New("the demo CMS has ended")
	case <-host.done:
		return errors.New("the host has ended")
	}
}

// checkPortsFree names the first port that is taken.
func checkPortsFree() error {
	for _, port := range []int{blobPort, queuePort, tablePort, cmsPort, hostPort} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return fmt.Errorf("port %d is taken: is the system running already?", port)
		}
		l.Close()
	}
	return nil
}

// childProcess is a process that dies with us.
type childProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startChild runs a program; its lines are passed on behind its name.
func startChild(name string, env []string, path string, args ...string) (*childProcess, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	// A group of its own: Ctrl-C in the terminal reaches us alone, and we stop in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	var copied sync.WaitGroup
	copied.Go(func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			fmt.Printf("[%s] %s\n", name, lines.Text())
		}
		io.Copy(io.Discard, out)
	})
	c := &childProcess{cmd, make(chan struct{})}
	go func() {
		cmd.Wait()
		in.Close()
		copied.Wait()
		close(c.done)
	}()
	return c, nil
}

// stopLimit is how long a child may take to stop; the host waits 10 s for its invocations.
const stopLimit = 15 * time.Second

// stopChild ends a child in order, and hard when it does not end.
func (c *childProcess) stopChild() {
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(stopLimit):
		syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.done
	}
}

// awaitReady waits until the address answers 200.
func awaitReady(ctx context.Context, host *childProcess, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the host did not become ready at %s", address)
		case <-host.done:
			return errors.New("the host ended before it was ready; its last lines say why")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func printWelcome() {
	fmt.Printf(`
Weir is running.

  messages   http://127.0.0.1:%[1]d/api/messages   (POST)
  health     http://127.0.0.1:%[1]d/api/health
  operator   http://127.0.0.1:%[1]d/api/dashboard  (the page; open it in a browser)
  demo CMS   http://127.0.0.1:%[2]d/               (items as a page; /stats as JSON)

Try:

  curl -i -X POST http://127.0.0.1:%[1]d/api/messages -H 'Content-Type: application/xml' \
    -d '<article path="/news/1" version="1"><title>Hello</title></article>'

and then curl the Location it answers with. In another terminal: make demo. Ctrl-C ends all.

`, hostPort, cmsPort)
}
