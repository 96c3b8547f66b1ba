package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// chainSteps is the number of requests per message if the steps do not remember ids: look up,
// create or update, publish.
const chainSteps = 3

// tokenLife is the lifetime of the tokens in measureTokens. A handler renews its token after 75 %
// of the lifetime.
const tokenLife = 2 * time.Second

// chainConfig is the weir.yaml for messages that need several requests each. Its format arguments
// are the number of lanes, the lease, and chainSignIn or "".
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

// rememberingSteps changes the steps of chainConfig so that they remember the CMS's id of each
// item.
var rememberingSteps = strings.NewReplacer(
	"get: /items?ref={{ key }}", "when: remembered == nil\n        get: /items?ref={{ key }}",
	"when: len(find.json.items) == 0", "when: remembered == nil and len(find.json.items) == 0",
	"    post: /items\n", "    post: /items\n        remember: \"{{ json.id }}\"\n",
	"when: len(find.json.items) == 1", "when: create == nil",
	"{{ find.json.items[0].id }}", "{{ remembered ?? find.json.items[0].id }}",
	"create?.json.id ?? find", "create?.json.id ?? remembered ?? find",
)

const chainSignIn = `  signIn: { oauth2: { tokenUrl: %s/token, clientId: weir, clientSecret: s3cret } }`

// runChains measures messages that need several requests each:
//   - a burst on one lane, compared with three round trips per message to the CMS without Weir
//   - many messages with tokens of a short lifetime
//   - a burst whose steps remember the ids of items
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

// measureRemembering posts the same burst to two installations of Weir. In the first one, the steps
// look up each message's item. In the second one, the steps remember the item's id.
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

		seconds[i], err = r.runChainBurst(ctx, site,
			makeMessages("remember", n, max(n/messagesPerKey, 1)))
		r.shutDown()
		if err != nil {
			return nil, err
		}

		requests[i] = float64(site.readStats().requests)
	}

	note := fmt.Sprintf("%d messages, %d a key, against the same chain without remember", n,
		messagesPerKey)

	return []result{
		newRow("chains that remember the id: requests", "", requests[1]).withBaseline(requests[0]).limitRatio(0.75).
			withNote("%s", note),
		newRow("chains that remember the id: serial burst", "s", seconds[1]).withBaseline(seconds[0]).limitRatio(0.85).
			withNote("%s", note),
	}, nil
}

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
		withNote("%d messages, %d clients, bare round trip %.2f ms", n, b.sizes.load.clients,
			trip)}, nil
}

// measureTokens counts the tokens that the handlers fetch while they deliver many messages. The CMS
// answers without delay, and its tokens expire after tokenLife.
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

	// each handler has tokens of its own
	renewals := instances * (elapsed/(0.75*tokenLife.Seconds()) + 2)

	return []result{newRow("chains with tokens of 2 s: tokens fetched", "", float64(st.tokens)).
		withBaseline(renewals).limitRatio(1).
		withNote("%d messages on %d lanes and %d instances in %.1f s (%.0f/s), each delivered once; %d requests had "+
			"an expired token, and were repeated with a new one", n, lanes, instances, elapsed,
			float64(n)/elapsed,
			st.unauthorized)}, nil
}

// runChainBurst posts messages from many clients, waits until all are delivered, and checks the
// CMS's record. It returns the seconds from the first post to the end of the CMS's last request.
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
		want -= len(all) - st.items // only a key's first message needs a look-up
	}

	if st.requests != want || st.newest != st.items || st.duplicates > 0 {
		return 0, fmt.Errorf("the CMS took %d requests, want %d; %d of its %d items are the newest, %d are duplicates",
			st.requests, want, st.newest, st.items, st.duplicates)
	}

	return st.endedAt.Sub(began).Seconds(), nil
}

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
