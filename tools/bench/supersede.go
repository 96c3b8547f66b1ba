package main

import (
	"context"
	"errors"
	"fmt"
)

const (
	items = 20
	edits = 50 // of each
)

// supersede sends bursts of edits under a contract that lets newer ones replace older
// ones that wait, and counts what reaches the CMS.
func supersede(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: cmsLatency, supersede: true})
	if err != nil {
		return nil, err
	}
	defer r.close()
	all := messages("edit", items*edits, items)
	if err := r.send(ctx, all, items, r.receive()); err != nil {
		return nil, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return nil, err
	}
	c, err := r.store.ReadControl(ctx, 0)
	if err != nil {
		return nil, err
	}
	st, counts := r.cms.Stats(), c.Tail.Counts
	if err := errors.Join(r.clean(int(counts.Delivered)), r.newest(edits)); err != nil {
		return nil, err
	}
	if counts.Delivered+counts.Superseded != int64(len(all)) {
		err = fmt.Errorf("of %d messages %d were delivered and %d superseded", len(all), counts.Delivered, counts.Superseded)
	}
	return []result{measured("writes that reach the CMS with supersede", "", float64(st.Writes)).against(float64(len(all))).
		noted("%d edits of each of %d items at once; %d were superseded", edits, items, counts.Superseded)}, err
}

// newest checks that every item ended at the version given.
func (r *rig) newest(version int) error {
	latest := map[string]int{}
	for _, req := range r.cms.Requests() {
		latest[req.Path] = req.Version
	}
	if len(latest) != items {
		return fmt.Errorf("%d of %d items reached the CMS", len(latest), items)
	}
	for path, v := range latest {
		if v != version {
			return fmt.Errorf("%s ended at version %d of %d", path, v, version)
		}
	}
	return nil
}
