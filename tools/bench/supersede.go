package main

import (
	"context"
	"errors"
	"fmt"
)

const (
	items = 20
	edits = 50 // per item
)

// runSupersede posts many versions of each item at once and counts the writes at the CMS. The
// contract has "supersede": the holder leaves out a version if a newer one already waits.
func runSupersede(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, rigOptions{latency: cmsLatency, supersede: true})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	all := makeMessages("edit", items*edits, items)
	if err := r.sendMessages(ctx, all, items, r.receiveURL()); err != nil {
		return nil, err
	}

	if err := r.awaitRest(ctx); err != nil {
		return nil, err
	}

	c, err := r.store.ReadControl(ctx, 0)
	if err != nil {
		return nil, err
	}

	st, counts := r.cms.Stats(), c.Tail.Counts
	if err := errors.Join(r.checkRecord(int(counts.Delivered)), checkLatestVersions(r, edits)); err != nil {
		return nil, err
	}

	if counts.Delivered+counts.Superseded != int64(len(all)) {
		err = fmt.Errorf("of %d messages %d were delivered and %d superseded", len(all),
			counts.Delivered, counts.Superseded)
	}

	return []result{newRow("writes that reach the CMS with supersede", "",
		float64(st.Writes)).withBaseline(float64(len(all))).
		withNote("%d edits of each of %d items at once; %d were superseded", edits, items,
			counts.Superseded)}, err
}

// checkLatestVersions checks that the last request for each item had the given version.
func checkLatestVersions(r *rig, version int) error {
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
