package app

import (
	"context"
	_ "embed" // for demo.yaml
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"weir/internal/democms"
	"weir/internal/door"
	"weir/internal/loopback"
	"weir/internal/panics"
	"weir/internal/settings"
)

// CMSVariable is the variable that weir.yaml names in delivery.url. The command weir serve --demo
// sets it.
const CMSVariable = "WEIR_CMS_URL"

// The demo CMS takes this time for a write.
const demoLatency, demoJitter = 20 * time.Millisecond, 5 * time.Millisecond

// DemoSettings is a weir.yaml for the demo, for users who have none.
//
//go:embed demo.yaml
var DemoSettings []byte

// demoRejects is the text of the sample message that the demo CMS rejects.
const demoRejects = "The demo CMS rejects this"

// DemoCMS is a demo CMS that runs in this process.
type DemoCMS struct {
	address string
	server  *http.Server
}

// StartDemoCMS starts a demo CMS on a loopback address.
func StartDemoCMS(address string) (*DemoCMS, error) {
	if !door.IsLoopback(address) {
		return nil, fmt.Errorf(
			"--demo-cms is %q, and must be a loopback address such as 127.0.0.1:7072",
			address,
		)
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf(
			"the demo CMS cannot listen on %s; --demo-cms takes another address: %w",
			address,
			err,
		)
	}

	cms := democms.New(demoLatency, demoJitter)
	cms.SetFaults(democms.Faults{RejectText: demoRejects})
	d := &DemoCMS{listener.Addr().String(), &http.Server{Handler: loopback.Guard(cms),
		ReadHeaderTimeout: 10 * time.Second}}
	go func() {
		panics.Catch(
			func() error { return d.server.Serve(listener) },
		) // returns when Close is called
	}()

	return d, nil
}

// BaseURL returns the address of the CMS's page.
func (d *DemoCMS) BaseURL() string { return "http://" + d.address }

// ContentURL returns the address to which messages are written.
func (d *DemoCMS) ContentURL() string { return d.BaseURL() + "/api/content" }

// Close ends the CMS. Requests under way get a second to end.
func (d *DemoCMS) Close() {
	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d.server.Shutdown(limited) != nil {
		d.server.Close()
	}
}

// CheckDemoSettings returns an error if the settings are wrong, or if they write to another CMS
// than the demo CMS: the samples of a demo must not reach a real CMS.
func CheckDemoSettings(env func(string) string, cms *DemoCMS) error {
	s, err := settings.Load(env)
	switch {
	case err != nil:
		return err
	case s.Delivery.URL != cms.ContentURL():
		return fmt.Errorf(
			"--demo writes to the demo CMS only, so %s must have delivery.url: ${%s}",
			s.FileName,
			CMSVariable,
		)

	case len(s.Keys) > 0:
		return errors.New(
			"--demo answers without keys: remove keys: from the settings, or leave out --demo",
		)
	}

	return nil
}
