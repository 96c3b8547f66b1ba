//go:build directus

package realcms_test

import (
	"testing"
	"time"

	"weir/tools/realcms"
)

// Without Weir, concurrent clients that write articles of the same slug create several articles of this slug.
func TestDirectus_ClientsWithoutWeirLeaveDuplicates(t *testing.T) {
	t.Parallel()
	d, err := realcms.StartDirectus(t.Context(), realcms.DirectusOptions{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	race := realcms.Race{Prefix: "sixteen", Slugs: 20, Versions: 20, Clients: 16}
	client, began := &realcms.DirectusClient{URL: d.URL, Token: d.Token}, time.Now()
	for _, err := range race.Run(t.Context(), client.Upsert) {
		t.Error(err)
	}
	took := time.Since(began)
	items, err := d.Posts(t.Context(), race.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	got := realcms.TallyPosts(race, items)
	t.Logf("%+v in %s", got, took.Round(100*time.Millisecond))
	if got.Surplus == 0 {
		t.Errorf("got %+v, want duplicates", got)
	}
}
