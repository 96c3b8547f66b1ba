package diagnosis

import (
	"strings"
	"testing"
	"time"

	"weir/internal/storage"
)

func TestDescribeInbox(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fresh := storage.File{Name: "a.xml", ModifiedAt: now.Add(-time.Hour)}
	old := storage.File{Name: "b.xml", ModifiedAt: now.Add(-3 * time.Hour)}
	for name, c := range map[string]struct {
		page    storage.FilePage
		detail  string
		warning string
	}{
		"Empty": {storage.FilePage{}, "files waiting: 0, events: 7", ""},
		"Fresh": {storage.FilePage{Files: []storage.File{fresh}},
			"files waiting: 1, events: 7", ""},
		"Old": {storage.FilePage{Files: []storage.File{fresh, old}, Next: "c"},
			"files waiting: 2 and more", "files in the inbox for over 2 hours: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := describeInbox(c.page, 7, now)
			if got := strings.Join(f.Warnings, " "); !strings.HasPrefix(f.Detail, c.detail) ||
				!strings.HasPrefix(got, c.warning) || (c.warning == "") != (got == "") {
				t.Errorf("got the detail %q and the warning %q, want %q and %q", f.Detail, got,
					c.detail, c.warning)
			}
		})
	}
}
