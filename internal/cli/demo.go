package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/app"
	"weir/internal/clock"
	"weir/internal/remote"
	"weir/internal/settings"
	"weir/internal/weir"
)

// sample is a message that the command weir serve --demo posts. Its id is its Idempotency-Key, so
// that the next start posts it only once.
type sample struct {
	id, body string
	dueIn    time.Duration // 0 = the message is due at once
}

// samples are for the contract "article" of the weir.yaml that Weir ships. The demo CMS rejects the
// last one.
var samples = []sample{
	{
		id:   "weir-demo-1",
		body: `<article path="/news/harbour" version="1"><title>The harbour opens</title></article>`,
	},
	{
		id:   "weir-demo-2",
		body: `<article path="/news/harbour" version="2"><title>The harbour is open</title></article>`,
	},
	{
		id:   "weir-demo-3",
		body: `<article path="/news/weather" version="1"><title>Rain tomorrow</title></article>`,
	},
	{id: "weir-demo-4", dueIn: time.Minute,
		body: `<article path="/news/later" version="1"><title>Sent a minute later</title></article>`},
	{id: "weir-demo-5",
		body: `<article path="/news/rejected" version="1"><title>The demo CMS rejects this</title></article>`},
}

// demoReadyTimeout is the time within which a process of the demo answers.
const demoReadyTimeout = 30 * time.Second

// demo is a running system with a demo CMS.
type demo struct {
	base, cms string // addresses of Weir and of the demo CMS
	log       string // name of the log file
	env       func(string) string
}

// showDemo prints the addresses of the demo, posts the samples, and prints a line for each message
// whose stage changes, until ctx ends.
func (s *console) showDemo(ctx context.Context, d demo) {
	client := &http.Client{Timeout: demoReadyTimeout}
	if err := awaitHealth(ctx, client, d.base); err != nil {
		if ctx.Err() == nil {
			s.printError(err)
		}
		return
	}

	isAccepted, err := postSamples(ctx, client, d.base)
	if err != nil && ctx.Err() == nil {
		s.printError(fmt.Errorf("the sample messages were not posted: %w", err))
	}

	s.printWelcome(d, isAccepted)

	api, err := remote.New(d.base, "")
	if err != nil {
		s.printError(err)
		return
	}
	defer api.Close()
	follow := &tailRun{
		apiCommand: &apiCommand{console: s, client: api},
		query:      url.Values{"limit": {strconv.Itoa(tailPage)}},
		known:      map[string]weir.Stage{},
	}
	if err := follow.followMessages(ctx, tailFlags{first: len(samples), interval: time.Second}); err != nil {
		s.printError(err)
	}
}

// awaitHealth waits until all checks of Weir pass.
func awaitHealth(ctx context.Context, client *http.Client, base string) error {
	ctx, cancel := context.WithTimeout(ctx, demoReadyTimeout)
	defer cancel()

	for {
		status, err := request(ctx, client, http.MethodGet, base+"/api/health", nil, nil)
		if err == nil && status == http.StatusOK {
			return nil
		}

		if !clock.Sleep(ctx, 50*time.Millisecond) {
			return errors.Join(
				fmt.Errorf("not ready after %s: see %s/api/checks", demoReadyTimeout, base),
				err,
			)
		}
	}
}

// postSamples posts the samples. It reports whether the contracts accept them.
func postSamples(
	ctx context.Context,
	client *http.Client,
	base string,
) (isAccepted bool, err error) {
	for _, one := range samples {
		headers := map[string]string{"Content-Type": "application/xml", "Idempotency-Key": one.id}
		if one.dueIn > 0 {
			headers["Weir-Deliver-At"] = time.Now().Add(one.dueIn).UTC().Format(time.RFC3339)
		}

		status, err := request(
			ctx,
			client,
			http.MethodPost,
			base+"/api/messages",
			headers,
			[]byte(one.body),
		)

		switch {
		case err != nil:
			return false, err
		case status == http.StatusUnprocessableEntity: // the settings are not those that Weir ships
			return false, nil
		case status >= http.StatusBadRequest:
			return false, fmt.Errorf("%d %s", status, http.StatusText(status))
		}
	}

	return true, nil
}

// request sends a request, and returns the status of its answer.
func request(
	ctx context.Context,
	client *http.Client,
	method, address string,
	headers map[string]string,
	body []byte,
) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}

	for name, value := range headers {
		req.Header.Set(name, value)
	}

	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)

	return resp.StatusCode, nil
}

func (s *console) printWelcome(d demo, isAccepted bool) {
	s.printLine(`
Weir is running.

  messages   %[1]s/api/messages   (POST)
  health     %[1]s/api/health
  operator   %[1]s/api/dashboard  (the page; open it in a browser)
  demo CMS   %[2]s/               (items as a page, and faults to try)
  log        %[3]s
`, d.base, d.cms, d.log)

	post := fmt.Sprintf(
		"  curl -i -X POST %s/api/messages -H 'Content-Type: application/xml' \\\n    ",
		d.base,
	)

	if isAccepted {
		s.printLine(
			"Try in another terminal:\n\n%s-d '<article path=\"/news/1\" version=\"1\"><title>Hello</title>"+
				"</article>'\n\nand then curl the Location of the answer.",
			post,
		)
	} else {
		s.printLine("Post a message of your contracts in another terminal:\n\n%s--data-binary @message.xml", post)
	}

	if exports := d.listExports(); exports != "" {
		s.printLine("\nCommands on storage, such as weir check and weir lanes 2, take these variables:\n\n"+
			"  export%s\n", exports)
	}

	s.printLine("Ctrl-C ends all. A line follows for each message whose stage changes.\n")
}

// listExports returns the variables that commands on the demo's folder need, for a shell. Without a
// folder there are none.
func (d demo) listExports() (exports string) {
	if d.env(settings.DataVariable) == "" {
		return ""
	}

	for _, name := range []string{settings.DataVariable, app.CMSVariable, "WEIR_CONFIG"} {
		if value := d.env(name); value != "" {
			exports += " " + name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
	}

	return exports
}
