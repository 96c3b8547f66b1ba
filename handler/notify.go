package main

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/replay"
)

// receiver is somebody who is told what happens.
type receiver struct {
	URL          string    `yaml:"url"`
	Secret       secret    `yaml:"secret"`
	Events       []string  `yaml:"events"`
	Contracts    []string  `yaml:"contracts"`
	PausedFor    *duration `yaml:"pausedFor"` // 0s: as soon as it is seen
	BehindBy     duration  `yaml:"behindBy"`
	AllowPrivate bool      `yaml:"allowPrivate"`
}

// callbacks are the addresses that messages may bring with them.
type callbacks struct {
	AllowedHosts []string `yaml:"allowedHosts"`
	AllowPrivate bool     `yaml:"allowPrivate"`
	Secret       secret   `yaml:"secret"`
}

// Where notify says nothing of them.
const (
	defaultPausedFor = duration(10 * time.Minute)
	defaultBehindBy  = duration(15 * time.Minute)
)

// receivers are the settings as package notify wants them, with what is wrong with their
// secrets.
func (s *Settings) receivers() (list []notify.Receiver, problems []error) {
	for i, r := range s.Notify {
		key, err := notify.ParseSecret(string(r.Secret))
		if err != nil {
			problems = append(problems, fmt.Errorf("notify[%d].secret: %w", i, err))
		}
		n := notify.Receiver{URL: r.URL, Secret: key, Events: r.Events, Contracts: r.Contracts, AllowPrivate: r.AllowPrivate,
			PausedFor: time.Duration(defaultPausedFor), BehindBy: time.Duration(defaultBehindBy)}
		if r.PausedFor != nil {
			n.PausedFor = time.Duration(*r.PausedFor)
		}
		if r.BehindBy != 0 {
			n.BehindBy = time.Duration(r.BehindBy)
		}
		list = append(list, n)
	}
	return list, problems
}

func (s *Settings) callbacks() (notify.Callbacks, []error) {
	c := notify.Callbacks{AllowedHosts: s.Callbacks.AllowedHosts, AllowPrivate: s.Callbacks.AllowPrivate}
	if len(c.AllowedHosts) == 0 && s.Callbacks.Secret == "" {
		return c, nil
	}
	var err error
	if c.Secret, err = notify.ParseSecret(string(s.Callbacks.Secret)); err != nil {
		return c, []error{fmt.Errorf("callbacks.secret: %w", err)}
	}
	return c, nil
}

// notifyProblems are those of notify and callbacks.
func (s *Settings) notifyProblems() []error {
	var contracts []string
	for _, c := range s.Contracts {
		contracts = append(contracts, c.Name)
	}
	receivers, problems := s.receivers()
	callbacks, more := s.callbacks()
	return append(append(problems, more...), notify.Check(receivers, callbacks, contracts)...)
}

// callbacks are those that messages may have.
func (p *Program) callbacks() notify.Callbacks {
	c, _ := p.settings.callbacks() // they were checked
	return c
}

// newNotifier makes what tells others, and has the store use it.
func (p *Program) newNotifier(store *lane.Store) *notify.Sender {
	receivers, _ := p.settings.receivers()
	sender := notify.New(notify.Config{Store: store, Leases: p.account.Leases(), Receivers: receivers, Callbacks: p.callbacks(), Observer: p.notified, Now: time.Now, Log: p.log})
	store.Mailer = sender
	return sender
}

// startNotifier does so for a process that stays, and looks for mail that was left in earlier
// epochs.
func (p *Program) startNotifier(ctx context.Context, store *lane.Store) *notify.Sender {
	sender := p.newNotifier(store)
	p.notifier.Store(sender)
	go func() {
		if err := sender.ScanEarlierEpochs(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("notify: earlier outboxes not looked at", "err", err)
		}
	}()
	return sender
}

// eventsWaiting is how many wait to be told, as far as this process knows.
func (p *Program) eventsWaiting() int {
	if s := p.notifier.Load(); s != nil {
		return s.Waiting()
	}
	return 0
}

// replayFinished tells that a bulk replay is over.
func (p *Program) replayFinished(j replay.Job) error {
	s := p.notifier.Load()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*storageRetry)
	defer cancel()
	return s.ReplayFinished(ctx, j.ID, j.FinishedAt, j)
}

// closeNotifier sends what is due, and ends.
func closeNotifier(ctx context.Context, sender *notify.Sender) error {
	settling, cancel := context.WithTimeout(ctx, stopTimeout/2)
	defer cancel()
	sender.WaitIdle(settling)
	return sender.Close(ctx)
}

// deaths knows who is to be told of deaths, and leaves it to others to tell them.
type deaths struct{ *notify.Sender }

// Nudge implements lane.Mailer.
func (deaths) Nudge(int) {}
