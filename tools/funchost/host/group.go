package host

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Group is a group of functions, as on Flex Consumption. An instance of a group runs only the
// listeners of the group's functions. All HTTP functions are one group, and each other function is
// a group of its own. Every instance starts the same handler.
type Group struct {
	// value of FUNCTIONS_TARGET_GROUP, such as "http" or "function:process"; empty = all functions
	Name      string
	Instances int
}

const httpGroup = "http"

// ParseGroups parses a number of instances such as "2", or a list of numbers by group such as
// "http=2,process=1". In a list, a function's name stands for the group of this function.
func ParseGroups(text string) ([]Group, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return nil, fmt.Errorf("instances %q: want at least 1", text)
		}
		return []Group{{Instances: n}}, nil
	}

	var out []Group
	for part := range strings.SplitSeq(text, ",") {
		name, count, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || name == "" {
			return nil, fmt.Errorf(
				"instances %q: want a number, or groups such as http=2,process=1", text)
		}

		out = append(out, Group{Name: GroupName(name), Instances: n})
	}

	return out, nil
}

// GroupName returns the full name of a group: for "process" it returns "function:process". It
// returns "", "http" and full names unchanged.
func GroupName(name string) string {
	if name == "" || name == httpGroup || strings.HasPrefix(name, "function:") {
		return name
	}
	return "function:" + name
}

// isIn reports whether the function belongs to the group.
func (f *function) isIn(group string) bool {
	switch {
	case group == "":
		return true
	case f.isHTTP():
		return group == httpGroup
	default:
		return strings.EqualFold(group, "function:"+f.name)
	}
}

// configuredGroups returns cfg.Groups if the groups have names. Otherwise it returns one group. On
// Flex Consumption, FUNCTIONS_TARGET_GROUP names this group; elsewhere the group has all functions.
func configuredGroups(cfg Config, env *environment) []Group {
	if len(cfg.Groups) > 1 || len(cfg.Groups) == 1 && cfg.Groups[0].Name != "" {
		return cfg.Groups
	}

	one := Group{Instances: max(cfg.Instances, 1)}
	if len(cfg.Groups) == 1 {
		one = cfg.Groups[0]
	}

	if env.getVar("WEBSITE_SKU") == flexSKU {
		one.Name = env.getVar("FUNCTIONS_TARGET_GROUP")
	}

	return []Group{one}
}

const flexSKU = "FlexConsumption"

// checkGroups returns an error if a group has no function.
func (a *app) checkGroups(groups []Group) error {
	for _, g := range groups {
		if !slices.ContainsFunc(a.functions, func(f *function) bool { return f.isIn(g.Name) }) {
			return fmt.Errorf("group %q: no function is in it", g.Name)
		}
	}
	return nil
}

// instancesFor returns the instances of the function's group. If the group has no instance, it
// returns all instances, because the real host serves HTTP requests in every group. The caller has
// locked h.mu.
func (h *Host) instancesFor(f *function) []*instance {
	var out []*instance
	for _, i := range h.instances {
		if f.isIn(i.group) {
			out = append(out, i)
		}
	}

	if len(out) == 0 {
		return h.instances
	}

	return out
}

// listensFor reports whether an instance of this host runs the function's listener. The caller has
// locked h.mu.
func (h *Host) listensFor(f *function) bool {
	return slices.ContainsFunc(h.instances, func(i *instance) bool { return f.isIn(i.group) })
}

// scaleInWhenIdle ends the instance when it has had no invocation for "span" or longer, as the
// platform does. Work that the handler does outside of invocations does not keep the instance
// alive. The handler gets no signal before SIGKILL.
func (i *instance) scaleInWhenIdle(span time.Duration) {
	seen := 0
	for sleepFor(i.lifetime, span) {
		begun := i.inFlight.countBegun()
		if begun == seen && i.markScaledIn() {
			i.host.console.logOwn("Instance %d had no invocation for %v and is scaled in.",
				i.number, span)
			i.host.retireReplaced(i)
			return
		}

		seen = begun

		if !i.inFlight.awaitCounts(i.lifetime,
			func(http, other int) bool { return http+other == 0 }) {
			return
		}
	}
}

// markScaledIn takes the instance out of use and returns true. If the instance has an invocation in
// flight or already retires, markScaledIn changes nothing and returns false.
func (i *instance) markScaledIn() bool {
	i.host.mu.Lock() // keeps pickInstance from choosing the instance now
	defer i.host.mu.Unlock()
	http, other, _ := i.inFlight.readCounts()
	if http+other > 0 || i.isRetiring.Load() {
		return false
	}

	i.isRetiring.Store(true)
	i.isScaledIn.Store(true)

	return true
}

// scaleOut starts a successor of a scaled-in instance. It returns nil if no instance is scaled in,
// if the host is stopping, or if the start fails. A failed start also makes the host give up. The
// caller has locked h.mu.
func (h *Host) scaleOut(among []*instance) *instance {
	at := slices.IndexFunc(among, func(i *instance) bool { return i.isScaledIn.Load() })
	if at < 0 || h.isStopping {
		return nil
	}

	old := among[at]
	successor, err := h.launchInstance(old.number, old.group)
	if err != nil {
		h.reportFatal(err)
		return nil
	}

	h.console.logOwn("Instance %d is started: there is work for it.", old.number)
	h.instances[slices.Index(h.instances, old)] = successor
	if old.isAlive() {
		h.replaced = append(h.replaced, old)
	}

	return successor
}

// startScaling runs scaleByQueue in the background for each queue function, if Config.IdleKill is
// set. The caller has locked h.mu.
func startScaling(h *Host) error {
	if h.cfg.IdleKill <= 0 {
		return nil
	}

	for _, f := range h.app.functions {
		if !f.hasTrigger("queueTrigger") || f.isDisabled || !h.listensFor(f) {
			continue
		}

		service, transport, err := h.queueService(f)
		if err != nil {
			return fmt.Errorf("function %q: %w", f.name, err)
		}

		ctx := h.listening
		h.background.Go(func() {
			defer transport.CloseIdleConnections()
			scaleByQueue(ctx, h, f, service.NewQueueClient(f.trigger.queue))
		})
	}

	return nil
}

// scalePause is the pause of scaleByQueue before each look at the queue.
const scalePause = time.Second

// scaleByQueue stands in for the platform's scale controller. It starts an instance whenever the
// queue has a visible message and the function has no available instance. It returns when ctx ends.
func scaleByQueue(ctx context.Context, h *Host, f *function, queue *azqueue.QueueClient) {
	for sleepFor(ctx, scalePause) {
		h.mu.Lock()
		hasInstance := len(h.availableFor(f)) > 0
		h.mu.Unlock()
		if hasInstance {
			continue
		}

		if res, err := queue.PeekMessages(ctx, nil); err != nil || len(res.Messages) == 0 {
			continue
		}

		h.mu.Lock()
		if len(h.availableFor(f)) == 0 {
			h.scaleOut(h.instancesFor(f))
		}

		h.mu.Unlock()
	}
}

// availableFor returns the instances that can get an invocation of the function now. The caller has
// locked h.mu.
func (h *Host) availableFor(f *function) []*instance {
	var out []*instance
	for _, i := range h.instancesFor(f) {
		// In a stopping host all instances are retiring, and still get the last requests.
		if i.isAlive() && (h.isStopping || !i.isRetiring.Load()) {
			out = append(out, i)
		}
	}

	return out
}
