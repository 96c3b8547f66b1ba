package main

import "time"

// sizes has the amounts of work in the scenarios: full by default, tiny in the smoke test.
type sizes struct {
	load      loadSizes
	accept    acceptSizes
	posts     []postSize
	consume   int // messages from a queue, a batch or files; for comparison, clients post as many
	fast      int // messages to a CMS that answers at once
	cpu       int // messages whose CPU time is measured
	logs      logSizes
	trickle   trickleSizes
	pair      pairSizes
	idle      idleSizes
	backlog   backlogSizes
	takeovers int // takeovers after a SIGKILL, and as many after a graceful stop
	due       dueSizes
	retry     retrySizes
	scheduled scheduledSizes
	recurring recurringSizes
	groups    groupSizes
	cold      coldSizes
	recipe    int // messages
	chains    chainSizes
	crowds    crowdSizes
	serve     serveSizes
}

// loadSizes are the sizes that most scenarios share.
type loadSizes struct {
	burst   int // messages
	clients int // clients that post the messages concurrently
	keys    int // keys over which the messages are spread
	warm    int // messages that a warm rig delivers before the measurement
	trips   int // round trips to the CMS without Weir before a measurement, and as many afterwards
}

// chainSizes has the numbers of messages that take several requests each.
type chainSizes struct {
	burst    int // messages on one lane
	signedIn int // messages whose chains sign in with short-lived tokens
}

var fullPosts = []postSize{
	{bytes: 1 << 10, latencies: 200, posts: 2000},
	{bytes: 100 << 10, latencies: 100, posts: 400},
	{bytes: 1 << 20, latencies: 30, posts: 80},
}

type acceptSizes struct {
	latencies int // posts of one client, one after the other
	rate      int // posts of many clients in one rig
}

type logSizes struct {
	burst, trickle int // messages
}

type trickleSizes struct {
	messages int
	gap      time.Duration // time between two messages
}

// pairSizes has the sizes of the scenarios with two instances.
type pairSizes struct {
	trickle int           // single messages, one each trickleSizes.gap
	backOff time.Duration // rest before the requests are counted
	idle    time.Duration // time in which the requests are counted
	wakes   int           // messages after that time, one by one
	rest    time.Duration // rest before each of these messages
	outage  time.Duration // time for which the CMS answers 503
	outages int
}

type idleSizes struct {
	backOff time.Duration // time until the host polls at its longest interval
	minutes int           // minutes in which requests are counted
	wakes   int           // messages after these minutes, one by one
}

type backlogSizes struct {
	short, long int // messages
	inMemory    int // messages of the long backlog on memory storage
}

type dueSizes struct {
	messages int // messages that are due at random times
	// time from the first post to the first due time; all posts must end in this time
	lead   time.Duration
	span   time.Duration // time from the first due time to the last
	killed int           // messages that are due after every instance was killed
}

type retrySizes struct {
	messages int
	gap      time.Duration // time between two messages
}

type scheduledSizes struct {
	messages int // messages due in the far future, on Azurite
	inMemory int // messages due in the far future, on memory storage
	burst    int // other messages, in each round on memory storage
	rounds   int
}

type recurringSizes struct {
	occurrences int           // number of occurrences, over all schedules
	lead        time.Duration // time until the first occurrence; the instances start in this time
	kills       int           // number of times that handlers are killed
}

type groupSizes struct {
	// messages of a burst; a burst that is posted beside other messages has burst/4 messages
	burst int
	flow  int // single messages that the instance of functions/process must send
	due   int // messages with a due time
}

type coldSizes struct {
	lanes  []int // numbers of lanes; the bench measures each number
	starts int   // number of starts, for each number of lanes
}

// crowdSizes has the sizes of the scenarios with many messages or many lanes.
type crowdSizes struct {
	due       dueRateSizes
	moment    momentSizes
	schedules scheduleSizes
	refused   refusedSizes
	aside     asideSizes
	retention oldSizes
	sweep     oldSizes
	tickets   ticketSizes
	hang      hangSizes
	memory    memorySizes
	waits     waitSizes
}

type dueRateSizes struct {
	rates []int         // rates in messages per second; the bench measures each rate
	span  time.Duration // time from the first due time to the last
}

type momentSizes struct {
	// numbers of messages that are due at one time; the bench measures each number
	messages []int
	lead     time.Duration // time until the due time; all posts must end in this time
}

type scheduleSizes struct {
	count int           // schedules that are due each second
	span  time.Duration // time for which the schedules run
}

type refusedSizes struct {
	bad, good int // messages that the CMS refuses, and messages that it takes
}

type asideSizes struct {
	behind int           // messages that wait because their key is blocked
	large  int           // messages of largeBody bytes that are due at one time
	lead   time.Duration // time from the start until the large messages are due
}

type oldSizes struct {
	lanes int
	each  int // messages past their retention time in each lane
}

type ticketSizes struct {
	lanes     int
	instances []int         // numbers of instances; the bench measures each number
	span      time.Duration // time for which messages come
}

type hangSizes struct {
	posts int           // posts during the time when all requests to storage hang
	span  time.Duration // from the first post to the last
	// Clients post for flow/4. Then one request to storage hangs, and the clients continue to post
	// for the time flow.
	flow time.Duration
}

type memorySizes struct {
	posts    int // posts at one time
	searched int // messages of searchedBody bytes
	searches int // searches at one time
	hung     int // posts of a megabyte at one time, while storage hangs
}

type waitSizes struct {
	answers int           // posts that wait for their messages' delivery at the same time
	span    time.Duration // the posts begin within span/2; each may wait for 2*span
	states  int           // reads of a status
	backlog int           // messages
}

var fullSizes = sizes{
	load:   loadSizes{burst: 1000, clients: 64, keys: 200, warm: 300, trips: 100},
	accept: acceptSizes{300, 1000}, posts: fullPosts,
	consume: 5000, fast: 3000, cpu: 5000, logs: logSizes{burst: 400, trickle: 60},
	trickle: trickleSizes{120, time.Second},
	pair: pairSizes{trickle: 75, backOff: 90 * time.Second, idle: time.Minute, wakes: 4,
		rest:   2 * time.Second,
		outage: 20 * time.Second, outages: 2},
	idle:    idleSizes{backOff: 2 * time.Minute, minutes: 3, wakes: 10},
	backlog: backlogSizes{short: 1000, long: 20_000, inMemory: 100_000}, takeovers: 3,
	due:       dueSizes{messages: 1000, lead: 10 * time.Second, span: time.Minute, killed: 200},
	retry:     retrySizes{500, 40 * time.Millisecond},
	scheduled: scheduledSizes{messages: 5000, inMemory: 100_000, burst: 2000, rounds: 60},
	recurring: recurringSizes{occurrences: 200, lead: 10 * time.Second, kills: 4},
	groups:    groupSizes{burst: 2000, flow: 200, due: 100}, cold: coldSizes{[]int{1, 64, 208}, 15},
	recipe: 60,
	chains: chainSizes{burst: 400, signedIn: 10_000}, crowds: fullCrowds,
	serve: serveSizes{rate: 20_000, messages: 100_000},
}

var fullCrowds = crowdSizes{
	due:       dueRateSizes{[]int{10, 20}, 45 * time.Second},
	moment:    momentSizes{[]int{1000, 2000}, 10 * time.Second},
	schedules: scheduleSizes{300, 20 * time.Second}, refused: refusedSizes{bad: 400, good: 50},
	aside:     asideSizes{behind: 20_000, large: 1000, lead: time.Minute},
	retention: oldSizes{lanes: 8, each: 1000}, sweep: oldSizes{lanes: 256, each: 10},
	tickets: ticketSizes{lanes: 64, instances: []int{1, 4}, span: 3 * time.Minute},
	hang:    hangSizes{posts: 40, span: 10 * time.Second, flow: 8 * time.Second},
	memory:  memorySizes{posts: 200, searched: 3000, searches: 40, hung: 150},
	waits:   waitSizes{answers: 3000, span: 20 * time.Second, states: 300, backlog: 1500},
}

// fartherSizes returns the sizes for a pass with delayed storage. Slow scenarios that need fewer
// samples get smaller sizes.
func (s sizes) fartherSizes() sizes {
	s.trickle.messages, s.idle.minutes, s.idle.wakes = min(s.trickle.messages, 60),
		min(s.idle.minutes, 1),
		min(s.idle.wakes, 5)
	s.backlog.long, s.takeovers, s.recipe = min(s.backlog.long, 5000), min(s.takeovers, 1),
		min(s.recipe, 20)
	s.scheduled.messages, s.chains.signedIn = min(s.scheduled.messages, 2000),
		min(s.chains.signedIn, 2000)
	return s
}
