package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// floorVariable is the environment variable with the settings of the bare program (see
// floorProgram), as JSON. If the variable is set, this process runs only the bare program.
const floorVariable = "WEIR_BENCH_FLOOR"

type floorSettings struct {
	Storage, Prefix, CMSURL string
	AppendMost              int // largest number of messages that a transaction appends
	CommitMost              int // largest number of outcomes that a transaction commits
}

// floorCommitWait is the longest time for which a commit waits for further outcomes, as in a
// holder.
const floorCommitWait = 100 * time.Millisecond

// floorProgram is a bare program whose CPU time is the baseline of the handler's CPU time. As the
// handler does, the program takes the posts, makes about as many transactions with the same storage
// client, and sends the same writes to the CMS. The program sends the writes on one connection,
// parses and checks nothing, keeps no order, and loses its state when it ends.
type floorProgram struct {
	settings  floorSettings
	rows      *bareBatcher
	client    *http.Client
	accepted  chan string   // bodies of accepted messages
	delivered chan struct{} // a value for each delivered message
	committed atomic.Int64  // number of messages whose outcomes are committed
}

// runFloor runs the bare program if floorVariable is set, and reports whether it ran. The program
// prints its host and port. It ends when "in" is at its end, or at an error.
func runFloor(ctx context.Context, in io.Reader, out io.Writer) (bool, error) {
	text := os.Getenv(floorVariable)
	if text == "" {
		return false, nil
	}

	var s floorSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return true, err
	}

	bare, err := openBareClient(ctx, s.Storage, s.Prefix)
	if err != nil {
		return true, err
	}
	defer bare.account.Close()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return true, err
	}

	f := &floorProgram{settings: s, rows: &bareBatcher{bare: bare, most: s.AppendMost},
		client:   newClient(),
		accepted: make(chan string, 1<<16), delivered: make(chan struct{}, 1<<16)}
	failed := make(chan error, 3)
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() { failed <- server.Serve(socket) }()
	go func() { failed <- f.deliver(ctx) }()
	go func() { failed <- f.commit(ctx, bare.account) }()
	go func() {
		_, err := io.Copy(io.Discard, in)
		failed <- errors.Join(err, errInputEnded)
	}()

	fmt.Fprintln(out, socket.Addr())
	if err := <-failed; !errors.Is(err, errInputEnded) {
		return true, err
	}

	return true, nil
}

var errInputEnded = errors.New("the input has ended")

// ServeHTTP stores the message of a POST. It answers a GET with the number of messages whose
// outcomes are committed.
func (f *floorProgram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprint(w, f.committed.Load())
		return
	}

	body, err := io.ReadAll(r.Body)
	if err == nil {
		// The transaction also has rows of other posts, so the end of this post must not cancel the
		// transaction.
		err = f.rows.fileRow(context.WithoutCancel(r.Context()), message{"/floor", 1})
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}

	f.accepted <- string(body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)

	// an error means that the client has gone
	io.WriteString(w, `{"id":"AQABL714SFvJDd7dAA","stage":"queued"}`)
}

func (f *floorProgram) deliver(ctx context.Context) error {
	for body := range f.accepted {
		if err := postBody(ctx, f.client, f.settings.CMSURL, body, nil); err != nil {
			return err
		}
		f.delivered <- struct{}{}
	}
	return nil
}

// commit stores the outcomes of deliveries, up to CommitMost in a transaction.
func (f *floorProgram) commit(ctx context.Context, account *azure.Account) error {
	tags, err := account.Table().Transact(ctx, barePartition,
		[]storage.Op{{Kind: storage.Insert, Key: "!tail",
			Values: map[string]any{"Delivered": int64(0)}}})
	for n := int64(0); err == nil; f.committed.Store(n) {
		<-f.delivered
		n++
		for late, most := time.After(floorCommitWait), n+
			int64(f.settings.CommitMost)-1; late != nil && n < most; {
			select {
			case <-f.delivered:
				n++
			case <-late:
				late = nil
			}
		}

		tags, err = account.Table().Transact(ctx, barePartition, []storage.Op{
			{Kind: storage.Replace, Key: "!tail", IfMatch: tags[0],
				Values: map[string]any{"Delivered": n}},
			{Kind: storage.Insert, Key: fmt.Sprintf("d_%019d", n),
				Values: map[string]any{"Messages": packedBody()}}})
	}

	return err
}

// commitMost is the largest number of outcomes that a holder commits in one transaction.
const commitMost = 32

// measureFloor sends the messages through the bare program, which makes about the given number of
// transactions. It returns the program's CPU time for the messages, in seconds.
func (r *rig) measureFloor(ctx context.Context, all []message,
	transactions float64) (float64, error) {
	appends := max(1, transactions-float64(len(all))/commitMost)
	url, cmd, end, err := startYardstick(ctx, floorVariable, floorSettings{
		Storage: r.yardstickStorage(), Prefix: r.prefix + "floor", CMSURL: r.cmsURL,
		AppendMost: max(1, int(math.Ceil(float64(len(all))/appends))), CommitMost: commitMost})
	if err != nil {
		return 0, err
	}
	defer end()
	warm := makeMessages("warm", r.sizes.load.warm, r.sizes.load.keys)
	if err := r.sendThroughFloor(ctx, warm, url, len(warm)); err != nil {
		return 0, err
	}

	before, err1 := readCPUTime(cmd.Process.Pid)
	err2 := r.sendThroughFloor(ctx, all, url, len(warm)+len(all))
	after, err3 := readCPUTime(cmd.Process.Pid)

	return after - before, errors.Join(err1, err2, err3)
}

// sendThroughFloor clears the CMS's record and sends messages through the bare program. It returns
// when the program has committed inAll outcomes in total.
func (r *rig) sendThroughFloor(ctx context.Context, all []message, url string, inAll int) error {
	r.cms.Reset()
	if err := r.sendMessages(ctx, all, r.sizes.load.clients, url); err != nil {
		return err
	}

	return r.awaitCondition(ctx, burstLimit, "the bare program has recorded all outcomes",
		func() bool {
			var n []byte
			err := getURL(ctx, r.client, url, func(body io.Reader) (err error) {
				n, err = io.ReadAll(body)
				return err
			})
			return err == nil && string(n) == strconv.Itoa(inAll)
		})
}

// startYardstick starts this binary again as a baseline program that takes posts. The environment
// variable names the program, and its value has the program's settings. startYardstick returns the
// address for posts, the command, and a function that ends the program.
func startYardstick(ctx context.Context, variable string, settings any) (url string, cmd *exec.Cmd,
	end func(), err error) {
	text, err1 := json.Marshal(settings)
	self, err2 := os.Executable()
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, nil, err
	}

	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, nil, err
	}

	if err := cmd.Start(); err != nil {
		return "", nil, nil, err
	}

	end = func() {
		in.Close()
		cmd.Wait() // its error is not needed: if the program failed, an earlier request failed, too
	}

	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, nil, fmt.Errorf("the baseline program has not started: %w", err)
	}

	return "http://" + strings.TrimSpace(address) + "/api/messages", cmd, end, nil
}
