package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// chainSteps is the number of requests for a message whose steps do not remember ids: look up, create or update,
// publish.
const chainSteps = 3

// tokenLife is the life of a token in measureTokens. A process renews its token after 75 % of this time.
const tokenLife = 2 * time.Second

// chainConfig is the weir.yaml of a rig whose messages take chains of requests. Its parameters are the lanes, the lease
// and the line of the sign-in, if any.
const chainConfig = `
lanes: %d
lease: %s
delivery:
  url: "${WEIR_CMS_URL}"
%s
contracts:
  - name: article
    root: article
    key: ./@path
    version: ./@version
    steps:
      - name: find
        get: /items?ref={{ key }}
      - name: create
        when: len(find.json.items) == 0
        post: /items
        json: &item { ref: "{{ key }}", version: "{{ number('./@version') }}", title: "{{ text('./title') }}" }
      - name: update
        when: len(find.json.items) == 1
        put: /items/{{ find.json.items[0].id }}
        json: *item
      - name: publish
        post: /items/{{ create?.json.id ?? find.json.items[0].id }}/publish
`

// rememberingSteps turns the steps of chainConfig into steps that remember the id of an item.
var rememberingSteps = strings.NewReplacer(
	"get: /items?ref={{ key }}", "when: remembered == nil\n        get: /items?ref={{ key }}",
	"when: len(find.json.items) == 0", "when: remembered == nil and len(find.json.items) == 0",
	"    post: /items\n", "    post: /items\n        remember: \"{{ json.id }}\"\n",
	"when: len(find.json.items) == 1", "when: create == nil",
	"{{ find.json.items[0].id }}", "{{ remembered ?? find.json.items[0].id }}",
	"create?.json.id ?? find", "create?.json.id ?? remembered ?? find",
)

const chainSignIn = `  signIn: { oauth2: { tokenUrl: %s/token, clientId: weir, clientSecret: s3cret } }`

// runChains measures messages that take three requests each. The first measurement is a burst on one lane, against
// three bare round trips a message. The second has many messages with tokens of a short life. The third is a burst
// whose steps remember the ids of items.
func runChains(ctx context.Context, b *bench) ([]result, error) {
	rows, err := measureChainBurst(ctx, b)
	if err != nil {
		return rows, err
	}
	more, err := measureTokens(ctx, b)
	if rows = append(rows, more...); err != nil {
		return rows, err
	}
	more, err = measureRemembering(ctx, b)
	return append(rows, more...), err
}

// measureRemembering posts the same burst to two rigs of one lane: in the first the steps look up the item of each
// message, in the second they remember its id.
func measureRemembering(ctx context.Context, b *bench) ([]result, error) {
	const messagesPerKey = 10
	var seconds, requests [2]float64
	n := b.sizes.chains.burst
	for i, remembers := range []bool{false, true} {
		site := newChainSite(cmsLatency, 0)
		site.remembers = remembers
		r, err := b.newWarmRig(ctx, rigOptions{chains: site})
		if err != nil {
			return nil, err
		}
		seconds[i], err = r.runChainBurst(ctx, site, makeMessages("remember", n, max(n/messagesPerKey, 1)))
		r.shutDown()
		if err != nil {
			return nil, err
		}
		requests[i] = float64(site.readStats().requests)
	}
	note := fmt.Sprintf("%d messages, %d a key, against the same chain without remember", n, messagesPerKey)
	return []result{
		newRow("chains that remember the id: requests", "", requests[1]).withBaseline(requests[0]).limitRatio(0.75).
			withNote("%s", note),
		newRow("chains that remember the id: serial burst", "s", seconds[1]).withBaseline(seconds[0]).limitRatio(0.85).
			withNote("%s", note),
	}, nil
}

// measureChainBurst posts a burst to one lane.
func measureChainBurst(ctx context.Context, b *bench) ([]result, error) {
	site := newChainSite(cmsLatency, 0)
	r, err := b.newWarmRig(ctx, rigOptions{chains: site})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n := b.sizes.chains.burst
	before, err := r.measureTrips(ctx, b.sizes.load.trips)
	if err != nil {
		return nil, err
	}
	elapsed, err := r.runChainBurst(ctx, site, makeMessages("chain", n, max(n/5, 1)))
	if err != nil {
		return nil, err
	}
	after, err := r.measureTrips(ctx, b.sizes.load.trips)
	if err != nil {
		return nil, err
	}
	trip := mean(append(before, after...))
	return []result{newRow("chains of three steps, serial burst", "s", elapsed).
		withLeast(chainSteps*float64(n)*trip/1000).requireRatio(0.95).
		withNote("%d messages, %d clients, bare round trip %.2f ms", n, b.sizes.load.clients, trip)}, nil
}

// measureTokens posts many messages to a CMS that answers at once and whose tokens live for two seconds.
func measureTokens(ctx context.Context, b *bench) ([]result, error) {
	const lanes, instances = 4, 2
	site := newChainSite(0, tokenLife)
	r, err := b.newWarmRig(ctx, rigOptions{lanes: lanes, instances: instances, chains: site})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n := b.sizes.chains.signedIn
	elapsed, err := r.runChainBurst(ctx, site, makeMessages("token", n, max(n/20, 1)))
	if err != nil {
		return nil, err
	}
	st := site.readStats()
	renewals := instances * (elapsed/(0.75*tokenLife.Seconds()) + 2) // each process has tokens of its own
	return []result{newRow("chains with tokens of 2 s: tokens fetched", "", float64(st.tokens)).
		withBaseline(renewals).limitRatio(1).
		withNote("%d messages on %d lanes and %d instances in %.1f s (%.0f/s), each delivered once; %d requests had "+
			"an expired token, and were repeated with a new one", n, lanes, instances, elapsed, float64(n)/elapsed,
			st.unauthorized)}, nil
}

// runChainBurst sends messages at once, waits until all are delivered, and checks the record of the CMS. It returns
// the seconds from the first post to the end of the last request.
func (r *rig) runChainBurst(ctx context.Context, site *chainSite, all []message) (float64, error) {
	site.resetStats()
	began := time.Now()
	if err := r.sendMessages(ctx, all, r.sizes.load.clients, r.receiveURL()); err != nil {
		return 0, err
	}
	if err := r.awaitRest(ctx); err != nil {
		return 0, err
	}
	st := site.readStats()
	want := chainSteps * len(all)
	if site.remembers {
		want -= len(all) - st.items // only the first message of a key has a look-up
	}
	if st.requests != want || st.newest != st.items || st.duplicates > 0 {
		return 0, fmt.Errorf("the CMS took %d requests, want %d; %d of its %d items are the newest, %d are duplicates",
			st.requests, want, st.newest, st.items, st.duplicates)
	}
	return st.endedAt.Sub(began).Seconds(), nil
}

// chainYAML returns the weir.yaml of a rig with chains.
func (r *rig) chainYAML() string {
	signIn := ""
	if r.chains.tokenLife > 0 {
		signIn = fmt.Sprintf(chainSignIn, r.cmsURL)
	}
	text := fmt.Sprintf(chainConfig, r.lanes, r.lease, signIn)
	if r.chains.remembers {
		text = rememberingSteps.Replace(text)
	}
	return text
}
