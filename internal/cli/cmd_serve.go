package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/settings"
)

const serveHelp = `Runs all of Weir in one process, without a Functions host: the HTTP API with the routes under /api,
the operator's page, delivery, timers and tickets. It runs until SIGTERM, SIGINT or the stop of a
Windows service, and ends within 8 s.

It stores everything in the folder of --data, and makes the folder if it is missing. One process at a
time has a folder open. With --storage azure it stores messages in the account of
AzureWebJobsStorage, beside any number of function apps and other processes on this account: they
share lanes and leases. It also takes messages from the queues of intake.rabbitmq, if weir.yaml has
them.

On a loopback address requests need no key, except if weir.yaml has keys. Any other address needs
keys (weir key new) and tls, or --behind-proxy if a proxy ends TLS. A key opens the functions under
which its hash stands in weir.yaml, or in variables such as WEIR_KEY_VIEW.

With --demo it also starts a small CMS, sends sample messages to it, and prints a line for each
message whose stage changes. weir.yaml must then have delivery.url: ${WEIR_CMS_URL}; without a
weir.yaml it writes one into the folder. The log is then a file of the folder.

The command logs JSON to stdout, errors to stderr. It ends with 1 if a setting is wrong, and with
200 if it must be started again, because the number of lanes has changed. docs/without-azure.md
has the set-up as a service.`

// The files of a demo in its folder.
const (
	demoSettingsName = "demo.yaml"
	demoLogName      = "demo.log"
)

type serveFlags struct {
	storage, data, config, listen, cms string
	isDemo, isBehindProxy              bool
}

// The values of --storage.
const (
	folderStorage = "folder"
	azureStorage  = "azure"
)

// defaultFolder is the folder of weir serve if neither --data nor WEIR_DATA names one.
const defaultFolder = "weir-data"

func newServeCommand(s *console) *cobra.Command {
	f := serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run all of Weir in one process",
		Long:  serveHelp,
		Args:  cobra.NoArgs,
	}

	flags := cmd.Flags()
	flags.StringVar(&f.storage, "storage", folderStorage,
		"folder, or azure: the account of AzureWebJobsStorage")
	flags.StringVar(&f.data, "data", "",
		"folder that stores everything (or WEIR_DATA; else weir-data)")
	flags.StringVar(
		&f.config,
		"config",
		"",
		"file of the settings (or WEIR_CONFIG; else weir.yaml)",
	)

	flags.StringVar(&f.listen, "listen", "127.0.0.1:7071", "address and port to listen on")
	flags.BoolVar(
		&f.isBehindProxy,
		"behind-proxy",
		false,
		"a proxy in front ends TLS and sets X-Forwarded-…",
	)

	flags.BoolVar(&f.isDemo, "demo", false, "start a demo CMS, and send sample messages")
	flags.StringVar(&f.cms, "demo-cms", "127.0.0.1:7072", "address and port of the demo CMS")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case f.storage != azureStorage && f.storage != folderStorage:
			return fmt.Errorf("--storage is %q, and must be %s or %s", f.storage, folderStorage,
				azureStorage)
		case f.storage == azureStorage && f.data != "":
			return errors.New("give --data or --storage azure, not both")
		case !f.isDemo && cmd.Flags().Changed("demo-cms"):
			return errors.New("--demo-cms is for --demo; leave it out, or add --demo")
		}

		if f.isDemo {
			return asFailure(s.runDemo(cmd.Context(), f), false)
		}

		return asFailure(app.ServeAlone(cmd.Context(), s.newServeProcess(f), f.options()), true)
	}

	return cmd
}

func (f serveFlags) options() app.StandaloneOptions {
	return app.StandaloneOptions{Listen: f.listen, IsBehindProxy: f.isBehindProxy}
}

// newServeProcess returns the process of the command, with the environment that the flags change.
func (s *console) newServeProcess(f serveFlags) app.Process {
	data := cmp.Or(f.data, s.env(settings.DataVariable), defaultFolder)
	if f.storage == azureStorage {
		data = ""
	}

	env := overlay(s.env, map[string]string{
		"WEIR_CONFIG":         cmp.Or(f.config, s.env("WEIR_CONFIG")),
		settings.DataVariable: data,
	})

	return app.Process{Env: env, Stdout: s.stdout, Stderr: s.stderr, StartedAt: s.startedAt}
}

// overlay returns an environment with other values of some variables.
func overlay(env func(string) string, values map[string]string) func(string) string {
	return func(name string) string {
		if value, isSet := values[name]; isSet {
			return value
		}
		return env(name)
	}
}

// runDemo serves with a demo CMS, and prints what happens to messages.
func (s *console) runDemo(ctx context.Context, f serveFlags) error {
	cms, err := app.StartDemoCMS(f.cms)
	if err != nil {
		return err
	}
	defer cms.Close()

	p, o := s.newServeProcess(f), f.options()
	log, err := s.prepareDemo(&p, cms)
	if err != nil {
		return err
	}
	defer log.Close()
	showing, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	o.Listening = func(base string) {
		go func() {
			defer close(shown)
			s.showDemo(showing, demo{base, cms.BaseURL(), log.Name(), p.Env})
		}()
	}

	err = app.ServeAlone(ctx, p, o)
	stop()
	if err == nil {
		<-shown
	}

	return err
}

// prepareDemo sets the environment and the log of a demo. In a folder the log is a file, because
// the terminal shows the messages; a user without weir.yaml gets the settings of the demo in the
// folder.
func (s *console) prepareDemo(p *app.Process, cms *app.DemoCMS) (log *os.File, err error) {
	values := map[string]string{app.CMSVariable: cms.ContentURL()}
	dir := p.Env(settings.DataVariable)
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%w: --data must name a folder in which this process can write",
				err)
		}

		if err := writeDemoSettings(dir, p.Env, values); err != nil {
			return nil, err
		}
	}

	p.Env = overlay(p.Env, values)
	if err := app.CheckDemoSettings(p.Env, cms); err != nil {
		return nil, err
	}

	if dir == "" {
		p.Stdout = s.stderr
		return os.Stderr, nil
	}

	log, err = os.OpenFile(filepath.Join(dir, demoLogName),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}

	p.Stdout, p.Stderr = log, log

	return log, nil
}

// writeDemoSettings writes the settings of the demo into the folder, and sets the variable of the
// settings to them, if neither a flag nor the present folder has others.
func writeDemoSettings(dir string, env func(string) string, values map[string]string) error {
	if env("WEIR_CONFIG") != "" {
		return nil
	}

	if _, err := os.Stat("weir.yaml"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	path, err := filepath.Abs(filepath.Join(dir, demoSettingsName))
	if err != nil {
		return err
	}

	values["WEIR_CONFIG"] = path

	return os.WriteFile(path, app.DemoSettings, 0o600)
}
