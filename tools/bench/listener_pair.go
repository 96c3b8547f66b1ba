package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// listenerPair is two instances of the queue listener's stand-in (listenerProgram), with a queue
// and a CMS of their own. Its rig has no handlers.
type listenerPair struct {
	*rig
	instances []listenerInstance // the first one is the listener
}

type listenerInstance struct {
	url string // address for posts
	cmd *exec.Cmd
	end func()
}

// startListeners starts two instances. The first is the listener before the second one starts.
func (b *bench) startListeners(ctx context.Context, o rigOptions) (*listenerPair, error) {
	o.withoutHost = true
	r, err := b.newRig(ctx, o)
	if err != nil {
		return nil, err
	}

	p := &listenerPair{rig: r}
	for range 2 {
		if err := p.startInstance(ctx); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}

	return p, nil
}

func (p *listenerPair) startInstance(ctx context.Context) error {
	url, cmd, end, err := startYardstick(ctx, listenerVariable, listenerSettings{
		Storage: p.yardstickStorage(), Prefix: p.prefix + "peer", CMSURL: p.cmsURL})
	if err != nil {
		return err
	}

	p.instances = append(p.instances, listenerInstance{url, cmd, end})
	if len(p.instances) > 1 {
		return nil
	}

	return p.awaitListening(ctx, url)
}

func (p *listenerPair) awaitListening(ctx context.Context, url string) error {
	return p.awaitCondition(ctx, readyLimit, "an instance is the listener", func() bool {
		state, err := p.readState(ctx, url)
		return err == nil && state.IsListening
	})
}

func (p *listenerPair) readState(ctx context.Context, url string) (state listenerState, err error) {
	err = getURL(ctx, p.client, url, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&state)
	})
	return state, err
}

// urls returns the addresses for posts to the instances.
func (p *listenerPair) urls() []string {
	var all []string
	for _, i := range p.instances {
		all = append(all, i.url)
	}
	return all
}

// readRequests returns the number of requests that the instances have sent to storage.
func (p *listenerPair) readRequests(ctx context.Context) (float64, error) {
	sum := 0.0
	for _, i := range p.instances {
		state, err := p.readState(ctx, i.url)
		if err != nil {
			return 0, err
		}
		sum += sumCounts(toFloats(state.Transactions))
	}

	return sum, nil
}

// killListener kills the listener. The other instance goes on.
func (p *listenerPair) killListener() error {
	first := p.instances[0]
	p.instances = slices.Delete(p.instances, 0, 1)
	err := first.cmd.Process.Kill()
	first.end()

	return err
}

func (p *listenerPair) stop() error {
	for _, i := range p.instances {
		i.end()
	}
	return p.shutDown()
}

// warmPair sends some messages through both instances, and clears the CMS's record.
func (p *listenerPair) warmPair(ctx context.Context) error {
	n := p.sizes.load.warm
	if err := p.sendMessages(ctx, makeMessages("warm", n, 20), 16, p.urls()...); err != nil {
		return fmt.Errorf("warm up the listeners: %w", err)
	}

	if err := p.awaitDelivered(ctx, n); err != nil {
		return fmt.Errorf("warm up the listeners: %w", err)
	}

	p.cms.Reset()

	return nil
}
