package realcms_test

import (
	"os"
	"path/filepath"
	"testing"

	"weir/tools/realcms"
)

// startWordPress starts a WordPress that ends with the test. If the test fails, the test prints the
// end of the output of WordPress's processes.
func startWordPress(t *testing.T) *realcms.WordPress {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		log.Close()
		if text, err := os.ReadFile(path); t.Failed() && err == nil {
			t.Logf("the end of the log:\n%s", text[max(0, len(text)-10_000):])
		}
	})

	wp, err := realcms.StartWordPress(t.Context(), realcms.WordPressOptions{Log: log})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := wp.Stop(); err != nil {
			t.Error(err)
		}
	})

	return wp
}

// TestWordPress_ClientsWithoutWeirLeaveDuplicates shows the fault that Weir prevents. Concurrent
// clients can look for a post of the same slug, find none, and each create a post. A single client
// creates one post for each slug.
func TestWordPress_ClientsWithoutWeirLeaveDuplicates(t *testing.T) {
	t.Parallel()
	wp := startWordPress(t)
	for name, c := range map[string]struct {
		race       realcms.Race
		duplicates bool
	}{
		"Alone":   {realcms.Race{Prefix: "alone", Slugs: 5, Versions: 4, Clients: 1}, false},
		"Sixteen": {realcms.Race{Prefix: "sixteen", Slugs: 20, Versions: 20, Clients: 16}, true},
	} {
		client := &realcms.WordPressClient{URL: wp.URL, User: wp.User, Password: wp.Password}
		for _, err := range c.race.Run(t.Context(), client.Upsert) {
			t.Errorf("%s: Upsert = %v, want no error", name, err)
		}

		posts, err := wp.Posts(t.Context(), c.race.Prefix)
		if err != nil {
			t.Fatal(err)
		}

		got := realcms.TallyPosts(c.race, posts)
		t.Logf("%s: %+v", name, got)
		if c.duplicates && got.Surplus == 0 || !c.duplicates && !got.IsClean() {
			t.Errorf("%s: got %+v, want duplicates: %t", name, got, c.duplicates)
		}
	}
}
