package simulation_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/steps"
	"weir/internal/weir"
)

// TestChains simulates runs in which a chain of requests writes each message to the CMS: look up,
// create or update, publish.

// chaining has the settings of a run with chains. The zero value means that one request writes each
// message.
type chaining struct {
	isOn        bool
	isUnique    bool // the CMS refuses a second item with the same ref
	honoursKeys bool // the CMS answers a repeated Idempotency-Key with its first answer
	// the CMS refuses a request with a lower fence than an earlier request
	checksFences bool
	stubborn     bool // for some messages, the CMS answers each update with 412
	// the longest time from the creation of an item until look-ups find the item
	lag          time.Duration
	edits        int  // number of changes that editors make to items
	indexesFirst bool // the CMS refuses to publish an item that look-ups do not find yet
	remembers    bool // the chain remembers the ids of items
	removals     int  // number of items that editors remove
	forgets      int  // number of times that operators ask to forget a remembered id
	queries      bool // the look-up is a query of GraphQL
	// the CMS forgets all sessions once, and then answers 403 to their tokens
	endsSessions bool
	// the CMS ignores case and accents in refs, upstreams vary them, and Weir folds keys
	isLoose bool
}

// foldRules returns the folding of keys in the run.
func (c chaining) foldRules() fold.Rules {
	if c.isLoose {
		return fold.All
	}
	return 0
}

// spellKey returns a key in a drawn spelling if the CMS compares loosely.
func (w *world) spellKey(key string) string {
	if !w.chains.isLoose {
		return key
	}
	return []string{"k", "K", "k\u0301", "K\u0301"}[w.dice.drawBelow("spelling", 4)] + key[1:]
}

// needsOneContract reports whether all messages of a key must have the same contract. Each contract
// has its own remembered id for a key. So the first message of a second contract would look the
// item up. If that look-up did not find the item yet, the chain would create a second item.
func (c chaining) needsOneContract() bool { return c.lag > 0 && !c.isUnique }

// lastStep is the name of the step that ends a chain.
const lastStep = "publish"

// settingsText returns the text of a settings file that has the steps of the chain.
func (c chaining) settingsText() string {
	text := chainRecipe
	if c.remembers {
		text = rememberingRecipe
	}

	if c.queries {
		text = strings.NewReplacer("    get: /items?ref={{ key }}\n", queryOfItems,
			"json.items", "json.data.items").Replace(text)
	}

	return text
}

// queryOfItems is the look-up as a query of GraphQL.
const queryOfItems = `    graphql: 'query($ref: String!) { items(ref: $ref) { id version } }'
    address: /graphql
    variables: { ref: "{{ key }}" }
`

const chainRecipe = `
steps:
  - name: find
    get: /items?ref={{ key }}
    on: [ { when: len(json.items) > 1, do: reject, say: "{{ key }} is there twice" } ]
  - name: create
    when: len(find.json.items) == 0
    post: /items
    json: &item { ref: "{{ key }}", message: "{{ id }}", text: "{{ text('.') }}" }
  - name: update
    when: len(find.json.items) == 1
    put: /items/{{ find.json.items[0].id }}
    headers: { If-Match: "{{ find.json.items[0].version }}" }
    json: *item
  - name: publish
    post: /items/{{ create?.json.id ?? find.json.items[0].id }}/publish
    success: json.state == 'published'
`

// rememberingRecipe looks an item up only if no id is remembered for the key.
const rememberingRecipe = `
steps:
  - name: find
    when: remembered == nil
    get: /items?ref={{ key }}
    remember: "{{ len(json.items) == 1 ? json.items[0].id : nil }}"
    on: [ { when: len(json.items) > 1, do: reject, say: "{{ key }} is there twice" } ]
  - name: create
    when: remembered == nil and len(find.json.items) == 0
    post: /items
    json: &item { ref: "{{ key }}", message: "{{ id }}", text: "{{ text('.') }}" }
    remember: "{{ json.id }}"
  - name: update
    when: create == nil
    put: /items/{{ remembered ?? find.json.items[0].id }}
    headers: { If-Match: "{{ find == nil ? nil : find.json.items[0].version }}" }
    json: *item
    on: [ { when: status == 404, do: forget } ]
  - name: publish
    post: /items/{{ create?.json.id ?? remembered ?? find.json.items[0].id }}/publish
    success: json.state == 'published'
    on: [ { when: status == 404, do: forget } ]
`

func drawChains(d *dice) settings {
	s := settings{
		instances: 1 + d.drawBelow("instances", 3), lanes: 1 + d.drawBelow("lanes", 2),
		messages: 15 + d.drawBelow("messages", 30), keys: 2 + d.drawBelow("keys", 6),
		lease: 15 * time.Second, timeout: d.drawBetween("timeout", time.Second, 6*time.Second),
		attempts: 2 + d.drawBelow("attempts", 4),
		patience: d.drawBetween("patience", 30*time.Second, 2*time.Minute),
		backoff: drain.Backoff{Min: d.drawBetween("backoff", 100*time.Millisecond, time.Second),
			Max: d.drawBetween("backoff", 2*time.Second, 15*time.Second)},
		faults:    []float64{0, 0.01, 0.03}[d.drawBelow("faults", 3)],
		cmsFaults: []float64{0.05, 0.15, 0.3, 0.5}[d.drawBelow("cms faults", 4)],
		trouble:   d.drawBetween("trouble", 20*time.Second, 90*time.Second), bad: [2]int{-1, -1},
		refusedRow: -1,
		crashes:    d.drawBelow("crashes", 3), cuts: d.drawBelow("cuts", 2),
		stops: d.drawBelow("stops", 2),
	}

	s.settle = lease.Margin(s.lease)
	s.chains = chaining{isOn: true, honoursKeys: d.drawChance("honours keys", 0.4),
		stubborn: d.drawChance("stubborn", 0.3), edits: []int{0, 5, 40}[d.drawBelow("edits", 3)]}

	// Without isUnique the CMS would take a second item of a key while look-ups do not find the
	// first item yet. No chain could avoid that.
	if d.drawChance("index lags", 0.3) {
		s.chains.isUnique, s.chains.lag = true, d.drawBetween("lag", 0, 3*time.Second)
	}

	if d.drawChance("remembers", 0.5) {
		s.chains.remembers, s.chains.removals = true, []int{0, 4, 12}[d.drawBelow("removals", 3)]
		if !s.chains.isUnique && d.drawChance("short lag", 0.5) {
			// This lag is shorter than the settle time and the shortest backoff. So if an
			// unanswered attempt has created an item, the look-up of the next attempt finds the
			// item.
			s.chains.lag = d.drawBetween("short lag", 50*time.Millisecond, 300*time.Millisecond)
			s.backoff.Min, s.chains.indexesFirst = 800*time.Millisecond,
				d.drawChance("indexes first", 0.5)
		}
	}

	// A chain whose remembered id was forgotten looks the item up. With a lag, that look-up could
	// miss the item. Without isUnique, the chain would then create a second item.
	if s.chains.remembers && (s.chains.isUnique || s.chains.lag == 0) {
		s.chains.forgets = []int{0, 4, 12}[d.drawBelow("forgotten ids", 3)]
	}

	s.chains.queries, s.chains.endsSessions = d.drawChance("queries", 0.4),
		d.drawChance("ends sessions", 0.4)
	if s.chains.endsSessions { // a 403 of another cause can use up the sign-in of five minutes
		s.patience = 6 * time.Minute
	}

	// A holder that stalled can send a late request after another process has taken the lane.
	// Without checksFences the CMS would accept that request.
	if d.drawChance("stands still", 0.4) {
		s.chains.checksFences = true
		s.standstills, s.traps = d.drawBelow("pauses", 3), d.drawBelow("traps", 4)
	}

	// The messages of all spellings of a key write one item. Which message is the newest is not
	// defined after a replay: the versions of two spellings cannot be compared. And each spelling
	// remembers an id of its own.
	if d.drawChance("loose", 0.3) {
		s.chains.isLoose, s.lanes, s.chains.remembers = true, 2+d.drawBelow("loose lanes", 2), false
		s.chains.removals, s.chains.forgets = 0, 0
		s.chains.indexesFirst, s.chains.lag = false, 0
	}

	if !s.chains.isLoose && d.drawChance("replays", 0.5) {
		s.operators, s.edits = 2+d.drawBelow("operators", 10),
			[]float64{0, 0.3}[d.drawBelow("corrections", 2)]
	}

	return s
}

var noVariables = regexp.MustCompile(`\$\{(\w+)\}`)

// newChainSender returns the sender that runs the chains. If the run has no chains, it returns the
// parameter single.
func (p *process) newChainSender(single *steps.Sender) drain.Sender {
	if !p.w.chains.isOn {
		return single
	}

	text := p.w.chains.settingsText()
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		panic(err) // the recipe is part of this test, so it is valid
	}

	var recipe struct {
		Steps steps.Source `yaml:"steps"`
	}
	if err := yaml.NodeToValue(file.Docs[0].Body, &recipe); err != nil {
		panic(err)
	}

	set, err := contract.New([]contract.Definition{{Name: "article", Root: "a", Key: contract.KeyPaths{"./@n"}},
		{Name: "edit", Root: "b", Key: contract.KeyPaths{"./@n"}}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		panic(err)
	}

	cfg := steps.Config{File: steps.NewFile(text, file.Docs, noVariables, os.Getenv),
		URL: "http://cms.test", Timeout: p.w.timeout, Settle: p.w.settle, Messages: set,
		Transport: p.newTransport(&chainWire{p.w.chainCMS, p}),
		Secrets:   p.signIn.Secrets, Now: p.now}

	for _, name := range []string{"article", "edit"} {
		cfg.Contracts = append(cfg.Contracts,
			steps.Contract{Name: name, Path: "steps", Steps: recipe.Steps})
	}

	sender, err := steps.New(cfg)
	if err != nil {
		panic(err)
	}

	p.mostRequests = sender.MostRequests

	return sender
}

// startEditors lets editors change and remove items at drawn times.
func (w *world) startEditors() {
	for i := range w.chains.edits {
		at := w.dice.drawBetween("editor", 0, w.trouble)
		w.loose.Go(func() {
			time.Sleep(at)
			w.chainCMS.editItem(i)
		})
	}

	for range w.chains.removals {
		at, n := w.dice.drawBetween("removal", 0, w.trouble), w.dice.drawBelow("removed", 20)
		w.loose.Go(func() {
			time.Sleep(at)
			w.chainCMS.removeItem(n)
		})
	}
}

// startForgettingIDs lets operators ask the holders to forget remembered ids.
func (w *world) startForgettingIDs(ctx context.Context) {
	for i := range w.chains.forgets {
		name := fmt.Sprint("forget id ", i)
		at, n := w.dice.drawBetween(name+" at", 0, w.trouble), w.dice.drawBelow(name+" key", w.keys)
		key, contract := fmt.Sprint("k", n), "article"
		if n%4 == 3 {
			contract = "edit"
		}

		w.upstream.Go(func() {
			time.Sleep(at)
			w.askUntilDone(ctx, name, lane.Of(key, w.lanes),
				func(ctx context.Context, s *lane.Store) error {
					_, err := s.Requests().ForgetRemembered(ctx, key, contract)
					if weir.KindOf(err) == weir.NotFound && err != nil {
						return nil
					}
					return err
				})
		})
	}
}

var numberInPath = regexp.MustCompile(`[0-9]+`)

// fileLast posts one more message of each key after the faults, if the run has chains. It checks
// that the CMS takes these messages, even if items were removed or half written before.
func (w *world) fileLast(ctx context.Context) bool {
	if !w.chains.isOn {
		return true
	}

	first := w.firstRefused()
	var filed sync.WaitGroup
	for i := range w.keys {
		number, key := first+i, fmt.Sprint("k", i)
		m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
			Body: w.newBody(number)}
		if i%4 == 3 {
			m.Contract, m.Supersede, m.Version = "edit", true, "99"
		}

		s := &submission{number: number, key: key, idem: fmt.Sprint("idem", number), message: m}
		w.check.expectSubmission(s)
		filed.Go(func() {
			time.Sleep(w.dice.drawBetween("last "+key, 0, time.Second))
			w.sendUntilAccepted(ctx, fmt.Sprint(number), s)
		})
	}

	filed.Wait()

	return w.awaitRest(ctx) && w.check.checkTaken(first, w.keys)
}

// checkTaken checks that the CMS has taken the submissions with the numbers first to first+n-1. It
// leaves out submissions without an answer, superseded messages, and messages that the CMS always
// refuses (chaining.stubborn).
func (c *checker) checkTaken(first, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		f := c.filedAs(i)
		if f == nil || f.taken || c.w.chains.stubborn && f.id.Seq%7 == 0 ||
			c.stageOf(f) == weir.Superseded {
			continue // superseded: an upstream sent a higher version by mistake
		}

		c.addViolation("refused", "the CMS has not taken seq %d of lane %d, key %s, which is %s",
			f.id.Seq, f.id.Lane, f.key, c.stageOf(f))
		return false
	}

	return true
}

// maxRounds is the number of times that an attempt is allowed to run its chain.
const maxRounds = 3

// checkChainRequest checks that each Idempotency-Key belongs to one step, and that an attempt runs
// its chain at most maxRounds times.
func (c *checker) checkChainRequest(r *chainRequest) {
	cms, key := c.w.chainCMS, r.name
	kind := r.method + numberInPath.ReplaceAllString(r.path, "#")
	cms.mu.Lock()
	known := cms.kinds[key]
	cms.kinds[key] = kind
	cms.mu.Unlock()
	if known != "" && known != kind {
		c.reportViolation("key", "%s sent %s with the Idempotency-Key of %s", r.p.name, kind, known)
	}

	c.checkForgottenID(r)

	if r.round > maxRounds {
		c.reportViolation("endless",
			"%s runs the chain of seq %d of lane %d for the %dth time in an attempt", r.p.name,
			r.id.Seq, r.id.Lane, r.round)
	}
}

// checkForgottenID checks the first write of a holder that has forgotten a remembered id. The
// holder must look the item up before it writes to the item.
func (c *checker) checkForgottenID(r *chainRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.laneOf(r.id.Lane)
	hash := c.store.NewEntry(weir.Message{Key: r.key, Contract: r.header.Get("Weir-Contract")}).RememberedKey()
	switch fence, isForgotten := l.forgottenIDs[hash]; {
	case !isForgotten:
	case r.step == "find":
		delete(l.forgottenIDs, hash)
	case fence == r.fence:
		c.addViolation("memory", "%s writes seq %d of lane %d to an item whose id it has forgotten",
			r.p.name, r.id.Seq, r.id.Lane)
	}
}

// checkOneWriter checks that no two requests for an item of a CMS that compares loosely are in the
// CMS at once, in different lanes. For the requests of one lane, checkOverlap checks this. The
// caller holds mu.
func (c *checker) checkOneWriter(r *request) {
	rules := c.w.chains.foldRules()
	for number, l := range c.lanes {
		for _, o := range l.active {
			if number != r.id.Lane && rules.Fold(o.key) == rules.Fold(r.key) {
				c.addViolation("item",
					"seq %d of lane %d, key %s, and seq %d of lane %d, key %s, write one item at "+
						"once", o.id.Seq, o.id.Lane, o.key, r.id.Seq, r.id.Lane, r.key)
			}
		}
	}
}

// checkItems checks each key, folded, that has a delivered message. The key must have exactly one
// item, unless an editor removed the item after it was last published. The item must not be older
// than the key's newest delivered message. The item can be newer, because a message can change the
// item and then fail. The caller holds mu.
func (c *checker) checkItems() {
	if !c.w.chains.isOn || c.first != nil {
		return
	}

	byRef, removed := map[string][]*item{}, c.w.chainCMS.removed
	for _, it := range c.w.chainCMS.items {
		ref := c.w.chains.foldRules().Fold(it.ref)
		byRef[ref] = append(byRef[ref], it)
	}

	newest := map[string]*filed{} // by filed.item
	for n := range c.w.lanes {
		for _, f := range c.laneOf(n).log {
			if c.stageOf(f) == weir.Delivered &&
				(newest[f.item] == nil || newest[f.item].isBefore(f)) {
				newest[f.item] = f
			}
		}
	}

	for key, f := range newest {
		items := byRef[key]
		if len(items) == 0 && removed[key].After(c.w.chainCMS.shown[key]) {
			continue // an editor removed the item after its last publication
		}

		if len(items) != 1 {
			c.addViolation("lost", "key %s has %d items, and seq %d of lane %d was delivered", key,
				len(items), f.id.Seq, f.id.Lane)
			continue
		}

		c.checkItem(items[0], f)
		c.checkRememberedID(items[0], f)
		c.counts.Items++
	}
}

// isBefore reports whether f is older than o. Both must be messages of the same item. If both have
// the contract "edit" and the same key, isBefore compares their versions. Otherwise it compares
// their positions, or returns false if one of the messages has onFailure: skip, because such a
// message has no place in the order.
func (f *filed) isBefore(o *filed) bool {
	switch {
	case f.edit && o.edit && f.key == o.key:
		return o.version.Newer(f.version)
	case f.skip || o.skip:
		return false
	}
	return f.placeInOrder() < o.placeInOrder()
}

// checkItem checks that an item has the content of f or of a newer message. The message f is the
// newest delivered message of the item's key. If the item has the content of f, that content must
// be published.
func (c *checker) checkItem(it *item, f *filed) {
	id, err := weir.ParseID(it.content.Message)
	if err != nil {
		c.addViolation("content", "the item of %s is of message %q", f.key, it.content.Message)
		return
	}

	by := c.laneOf(id.Lane).log[id.Seq-1]
	switch isLast := by == f || !by.isBefore(f) && !f.isBefore(by); {
	case by.isBefore(f):
		c.addViolation("newest", "the item of %s has seq %d, and seq %d was delivered", f.key,
			by.id.Seq, f.id.Seq)
	case isLast && !f.skip && (it.published == nil || *it.published != it.content):
		c.addViolation("newest", "the item of %s has seq %d, and shows %+v", f.key, by.id.Seq,
			it.published)
	case by == f && it.content.Text != textOf(f.edited):
		c.addViolation("content", "the item of %s is %q, and seq %d was edited to %q", f.key,
			it.content.Text, f.id.Seq, f.edited)
	}
}

// checkRememberedID checks that storage has the id of the key's item as the remembered id. If a
// holder has forgotten the id, and no chain has looked the item up afterwards, storage must have no
// id.
func (c *checker) checkRememberedID(it *item, f *filed) {
	if !c.w.chains.remembers {
		return
	}

	e := lane.Entry{Message: weir.Message{Key: f.key, Contract: f.contractName()}}
	want := strconv.Itoa(it.id)
	if _, isForgotten := c.laneOf(f.id.Lane).forgottenIDs[e.RememberedKey()]; isForgotten {
		want = ""
	}

	id, err := c.store.DeliveryState().ReadRemembered(context.Background(), f.id.Lane,
		e.RememberedKey())
	if err != nil || id != want {
		c.addViolation("memory", "key %s has the item %d, and storage remembers %q (%v), want %q",
			f.key, it.id, id, err, want)
	}
}

func (f *filed) contractName() string {
	if f.edit {
		return "edit"
	}
	return "article"
}

func textOf(body string) string {
	return textOfBody.ReplaceAllString(body, "")
}

var textOfBody = regexp.MustCompile(`<[^>]*>`)

// TestChains runs 120 seeds with chains, from seed 1 on. The environment variables CHAINS and
// CHAINS_FROM change the number and the first seed.
func TestChains(t *testing.T) { runWorlds(t, "CHAINS", 120, drawChains) }
