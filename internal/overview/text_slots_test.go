package overview_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/storage"
	"weir/internal/weir"
)

// slowTable delays each page, and records the largest number of bytes of bodies in a page.
type slowTable struct {
	storage.Table
	takes time.Duration // delay of each page

	mu   sync.Mutex
	most int // largest number of bytes of bodies in a page
}

func (s *slowTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	time.Sleep(s.takes)
	page, err := s.Table.Range(ctx, q)
	size := 0
	for _, r := range page.Rows {
		b, _ := r.Values["Body"].([]byte)
		size += len(b)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, size)

	return page, err
}

// While two searches for a text are running, a third search waits. If neither of the two ends
// within 3 s, the third search is refused.
func TestSearch_TwoTextsAtATime(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.appendMessage("a", withBody("<a>needle</a>"))
		w.store.Table = &slowTable{Table: w.store.Table, takes: 2 * time.Second}
		type answer struct {
			err   error
			after time.Duration
		}

		began, answers := time.Now(), make(chan answer)
		for range 5 {
			go func() {
				_, err := w.all.Search(t.Context(), overview.Filter{Text: "needle"}, 5, "")
				answers <- answer{err, time.Since(began)}
			}()
		}

		refused := 0
		for range 5 {
			a := <-answers
			var e *weir.Error
			if a.err == nil {
				continue
			}

			refused++

			if !errors.As(a.err, &e) || e.Kind != weir.Unavailable || e.RetryAfter < time.Second ||
				a.after != 3*time.Second {
				t.Errorf("got %#v after %s, want Unavailable after 3s", a.err, a.after)
			}
		}

		if refused != 3 {
			t.Errorf("%d of 5 searches were refused, want 3", refused)
		}

		if _, err := w.all.Search(t.Context(), overview.Filter{Text: "needle"}, 5, ""); err != nil {
			t.Errorf("Search after the others ended = %v, want no error", err)
		}
	})
}

// A search may have at most 2 MiB of bodies in memory at a time, so it reads the bodies in batches.
func TestSearch_ReadsBodiesInBatches(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for range 200 {
			var b strings.Builder
			for range 40 << 10 {
				b.WriteByte(byte('!' + rand.IntN(90)))
			}
			w.appendMessage("a", withBody(b.String()))
		}

		table := &slowTable{Table: w.store.Table}
		w.store.Table = table
		found, err := w.all.Search(t.Context(), overview.Filter{Text: "needle"}, 5, "")
		if err != nil || found.Examined < 200 || table.most > 2<<20 || table.most < 1<<20 {
			t.Errorf("examined %d messages with up to %d bytes of bodies at a time, %v; want at least 200, 1 to 2 MiB "+
				"and no error", found.Examined, table.most, err)
		}
	})
}
