package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"weir/internal/weir"
	"weir/internal/wire"
)

type batchesView struct {
	*page
	Batches []wire.Batch
}

func (d *Dashboard) batchesPage(ctx context.Context, p *page, _ *http.Request) (view, error) {
	v := &batchesView{page: p}
	p.Title, p.Refresh = "Batches", true
	reading := d.newLoader(ctx, p)
	reading.loadPart("the batches", func() (err error) {
		v.Batches, err = d.batches.load(ctx, "", p.Now, reading.cacheAge(shortAge),
			d.Source.Batches)
		return err
	})

	reading.waitAll()

	return v, nil
}

type batchView struct {
	*page
	B           wire.Batch
	Look        badge
	Stages      []stageCount
	Problems    []wire.PartProblem // problems of the first invalid parts
	HasProblems bool               // the batch has more invalid parts than the page shows
	CanCancel   bool
}

// stageCount is the number of a batch's messages in one stage.
type stageCount struct {
	Look  badge
	Count int
}

// shownProblems is the largest number of invalid parts that the page of a batch shows.
const shownProblems = 100

func (d *Dashboard) batchPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	b, err := d.Source.Batch(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	v := &batchView{page: p, B: b, Look: batchStateBadge(b.State), CanCancel: !b.IsFinal() &&
		b.CancelAskedAt.IsZero(),
		Problems:    b.Problems[:min(len(b.Problems), shownProblems)],
		HasProblems: b.Invalid > shownProblems}

	p.Title, p.Refresh = "Batch "+b.ID, true
	if b.Filed == 0 {
		return v, nil
	}

	reading := d.newLoader(ctx, p)
	reading.loadPart("the stages of its messages", func() error {
		// To count the stages of a large batch takes seconds and thousands of reads. So the page
		// accepts a cached value that is up to longAge old.
		counts, err := d.stagesOf.load(ctx, fmt.Sprint(b.ID, " ", b.Filed), p.Now,
			reading.cacheAge(longAge),
			func(ctx context.Context) (map[weir.Stage]int,
				error) {
				return d.Source.BatchStages(ctx, b.ID)
			})

		v.Stages = sortStages(counts)
		return err
	})

	reading.waitAll()

	return v, nil
}

// sortStages returns the counts, sorted by the names of their stages.
func sortStages(counts map[weir.Stage]int) []stageCount {
	var sorted []stageCount
	for stage, n := range counts {
		sorted = append(sorted, stageCount{stageBadge(stage), n})
	}

	slices.SortFunc(sorted, func(a, b stageCount) int {
		if a.Look.Word < b.Look.Word {
			return -1
		}
		return 1
	})

	return sorted
}
