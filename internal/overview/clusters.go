package overview

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Cluster is a group of dead messages with the same fingerprint.
type Cluster struct {
	Fingerprint string
	Contract    string
	CMSStatus   int // 0 = the CMS did not answer
	// the reason, with placeholders for the parts that differ between messages
	Message     string
	Count       int       // number of messages
	Keys        int       // number of different ordering keys
	First, Last time.Time // times of the first and the last death
	Sample      Sample    // the message that died last
}

// Sample is one dead message. The ID is empty if retention has removed the message.
type Sample struct{ ID, Key, Reason string }

// Clusters is the result of Overview.Clusters.
type Clusters struct {
	List     []Cluster // the cluster with the latest death first
	Examined int       // number of dead messages that were read
	Complete bool      // all dead messages were read
}

// A call of Clusters reads the first chunk of dead messages in each lane. After maxClusterQueries
// further queries for dead messages, it reads no more chunks.
const maxClusterQueries = 20

// Clusters groups the dead messages by fingerprint, and returns up to limit groups. The group with
// the latest death comes first. If there are too many dead messages for one call, Clusters reads
// only the newest ones.
func (o *Overview) Clusters(ctx context.Context, limit int) (Clusters, error) {
	k := &clusterer{byFingerprint: map[string]*openCluster{}}
	lanes := make([]*lists.BackwardScan, o.Store.Lanes)
	err := lane.ForEach(len(lanes), func(n int) error {
		c, err := o.Store.ReadControl(ctx, n)
		if err == nil && c.Tail.Counts.Dead > 0 {
			lanes[n] = lists.Reader{Store: o.Store}.ScanBackward(n, c.Head.Next, deadChunk)
		}
		return err
	})
	if err != nil {
		return Clusters{}, readError("errors", err)
	}

	spare := maxClusterQueries
	for round := 0; round == 0 || spare > 0; round++ {
		left := slices.DeleteFunc(slices.Clone(lanes), func(p *lists.BackwardScan) bool {
			return p == nil || p.Before <= 1
		})
		if len(left) == 0 {
			return o.buildClusters(ctx, k, limit, true)
		}

		before := countQueries(left)
		if err := lane.ForEach(len(left), func(i int) error { return k.readChunk(ctx, left[i]) }); err != nil {
			return Clusters{}, readError("errors", err)
		}

		if round > 0 {
			spare -= countQueries(left) - before
		}
	}

	whole := !slices.ContainsFunc(lanes,
		func(p *lists.BackwardScan) bool { return p != nil && p.Before > 1 })

	return o.buildClusters(ctx, k, limit, whole)
}

func countQueries(lanes []*lists.BackwardScan) int {
	n := 0
	for _, p := range lanes {
		n += p.Queries
	}
	return n
}

type clusterer struct {
	mu            sync.Mutex
	examined      int
	byFingerprint map[string]*openCluster
}

// openCluster is a cluster to which messages are still added.
type openCluster struct {
	Cluster
	keys map[string]bool
	lane int   // lane of the sample
	seq  int64 // sequence number of the sample
}

// readChunk reads the next chunk of a lane, and adds the dead messages to the clusters.
func (k *clusterer) readChunk(ctx context.Context, p *lists.BackwardScan) error {
	rows, err := p.ReadDead(ctx)
	if err != nil {
		return err
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range rows {
		k.addDead(p.Lane(), d)
	}

	return nil
}

func (k *clusterer) addDead(number int, d lists.DeadRow) {
	k.examined++
	name, message := weir.Fingerprint(d.Contract, d.CMSStatus, d.Reason)
	one := k.byFingerprint[name]
	if one == nil {
		one = &openCluster{Cluster: Cluster{Fingerprint: name, Contract: d.Contract,
			CMSStatus: d.CMSStatus, Message: message, First: d.DiedAt}, keys: map[string]bool{}}
		k.byFingerprint[name] = one
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

// buildClusters returns the clusters with the latest deaths, at most limit. It reads the id of each
// sample. A sample gets no id if retention has removed the message.
func (o *Overview) buildClusters(ctx context.Context, k *clusterer, limit int,
	whole bool) (Clusters, error) {
	list := make([]*openCluster, 0, len(k.byFingerprint))
	for _, one := range k.byFingerprint {
		list = append(list, one)
	}

	slices.SortFunc(list, func(a, b *openCluster) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	list = list[:min(len(list), limit)]
	out := Clusters{List: make([]Cluster, len(list)), Examined: k.examined, Complete: whole}
	err := lane.ForEach(len(list), func(i int) error {
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
