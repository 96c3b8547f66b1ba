package overview

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Cluster is dead messages that died of the same.
type Cluster struct {
	Fingerprint string
	Contract    string
	CMSStatus   int    // 0 = the CMS gave none
	Message     string // the reason without what differs
	Count       int
	Keys        int
	First, Last time.Time // when they died
	Sample      Sample    // the one that died last
}

// Sample is one dead message.
type Sample struct{ ID, Key, Reason string }

// Clusters is what the dead messages died of.
type Clusters struct {
	List     []Cluster // the newest first
	Looked   int       // dead messages looked at
	Complete bool      // these are all
}

// clusterLooks bounds the queries, beyond the first of each lane.
const clusterLooks = 20

// Clusters sorts the dead messages by what they died of, the newest of each lane first, and
// gives up to limit kinds.
func (o *Overview) Clusters(ctx context.Context, limit int) (Clusters, error) {
	k := &kinds{byName: map[string]*kind{}}
	lanes := make([]*lane.Past, o.Store.Lanes)
	err := lane.Each(len(lanes), func(n int) error {
		c, err := o.Store.Control(ctx, n)
		if err == nil && c.Tail.Counts.Dead > 0 {
			lanes[n] = o.Store.Past(n, c.Head.Next, deadSpan)
		}
		return err
	})
	if err != nil {
		return Clusters{}, readError("errors", err)
	}
	spare := clusterLooks
	for round := 0; round == 0 || spare > 0; round++ {
		left := slices.DeleteFunc(slices.Clone(lanes), func(p *lane.Past) bool { return p == nil || p.Before <= 1 })
		if len(left) == 0 {
			return o.clusters(ctx, k, limit, true)
		}
		before := looksOf(left)
		if err := lane.Each(len(left), func(i int) error { return k.read(ctx, left[i]) }); err != nil {
			return Clusters{}, readError("errors", err)
		}
		if round > 0 {
			spare -= looksOf(left) - before
		}
	}
	whole := !slices.ContainsFunc(lanes, func(p *lane.Past) bool { return p != nil && p.Before > 1 })
	return o.clusters(ctx, k, limit, whole)
}

func looksOf(lanes []*lane.Past) int {
	n := 0
	for _, p := range lanes {
		n += p.Looks
	}
	return n
}

// kinds gathers dead messages by kind.
type kinds struct {
	mu     sync.Mutex
	looked int
	byName map[string]*kind
}

type kind struct {
	Cluster
	keys map[string]bool
	lane int
	seq  int64 // of the sample
}

// read takes in a lane's next piece.
func (k *kinds) read(ctx context.Context, p *lane.Past) error {
	rows, err := p.ReadDead(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range rows {
		k.add(p.Lane(), d)
	}
	return nil
}

func (k *kinds) add(number int, d lane.DeadRow) {
	k.looked++
	name, message := weir.Fingerprint(d.Contract, d.CMSStatus, d.Reason)
	one := k.byName[name]
	if one == nil {
		one = &kind{Cluster: Cluster{Fingerprint: name, Contract: d.Contract, CMSStatus: d.CMSStatus, Message: message, First: d.DiedAt}, keys: map[string]bool{}}
		k.byName[name] = one
	}
	one.Count++
	one.keys[d.Key] = true
	if d.DiedAt.Before(one.First) {
		one.First = d.DiedAt
	}
	if !d.DiedAt.Before(one.Last) {
		one.Last, one.Sample = d.DiedAt, Sample{Key: d.Key, Reason: d.Reason}
		one.lane, one.seq = number, d.Seq
	}
}

// clusters gives the answer, with the samples' ids. A sample that was replayed or removed
// since has none.
func (o *Overview) clusters(ctx context.Context, k *kinds, limit int, whole bool) (Clusters, error) {
	list := make([]*kind, 0, len(k.byName))
	for _, one := range k.byName {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *kind) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	list = list[:min(len(list), limit)]
	out := Clusters{List: make([]Cluster, len(list)), Looked: k.looked, Complete: whole}
	err := lane.Each(len(list), func(i int) error {
		entries, _, err := o.Store.ReadMany(ctx, list[i].lane, []int64{list[i].seq})
		for _, e := range entries {
			list[i].Sample.ID = e.Message.Public().String()
		}
		list[i].Keys = len(list[i].keys)
		out.List[i] = list[i].Cluster
		return err
	})
	if err != nil {
		return Clusters{}, readError("errors", err)
	}
	return out, nil
}
