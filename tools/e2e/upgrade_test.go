//go:build upgrade

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weir/tools/funchost/fleet"
)

// `make upgrade` builds the previous release, and then runs these tests. The build needs the Git
// history, so `make test` does not run these tests.

// The test upgrades Weir in the middle of a burst, with the steps of docs/deploy.md, and later goes
// back. During each change, hosts of both versions run on one storage. No message may be lost or
// delivered out of order. Each version must read the messages of the other version.
func TestUpgradeAndBack(t *testing.T) {
	const paths, each = 40, 25
	u := newUpgrade(t)
	u.setFaults(`{"rejectText":"bad"}`)
	old := u.addHosts(2, u.previous)
	first := u.postInBackground(paths, each, 1)
	u.postScheduled(20)
	u.awaitCondition("the version before is in mid-burst", startLimit,
		func() bool { return u.readStats().Writes >= 100 })
	u.postRejected("of the version before")

	now := u.addHosts(2, u.app)
	u.awaitMoreWrites(150) // while hosts of both versions run
	u.stopHosts(old)
	second := u.postInBackground(paths, each, each+1)
	u.awaitMoreWrites(150)
	u.postRejected("of this version")

	old = u.addHosts(2, u.previous)
	u.awaitMoreWrites(150)
	u.stopHosts(now)
	third := u.postInBackground(paths, each/2, 2*each+1)
	messages := append(append(<-first, <-second...), <-third...)
	if want := paths * (2*each + each/2); len(messages) != want {
		t.Fatalf("%d messages were accepted, want %d", len(messages), want)
	}

	u.awaitStages(messages, "delivered", 5*time.Minute)
	u.checkBooks(len(messages)+20, paths+20)

	now = u.addHosts(1, u.app)
	u.stopHosts(old)
	u.awaitStages(messages, "delivered", time.Minute) // this version reads all messages, too
	u.checkRepost(messages[0])
	u.checkHistory(messages)
	t.Logf("%d messages, %d of them written twice", len(messages)+20, u.checkRecord().Repeats)
}

// upgrade is a fleet with hosts of two versions on one storage.
type upgrade struct {
	*fleetSystem
	previous string // app folder of the previous version
	bad      int    // number of messages that postRejected has posted
}

// newUpgrade starts storage, a CMS and a fleet without hosts.
func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	previous := os.Getenv("WEIR_PREVIOUS")
	if _, err := os.Stat(previous + "/handler"); err != nil {
		t.Fatalf("WEIR_PREVIOUS names no staged app, run make upgrade: %v", err)
	}

	u := &upgrade{fleetSystem: newFleetSystem(t, 0), previous: previous}
	u.ignoreAnswers(u.weir)

	return u
}

// ignoreAnswers lets answers of an address differ from openapi.yaml, because the previous version
// has its own openapi.yaml.
func (u *upgrade) ignoreAnswers(url string) {
	u.t.Cleanup(answers.Watch(strings.TrimPrefix(url, "http://"), func(string) {}))
}

// addHosts starts hosts with the given app, and waits until they are ready.
func (u *upgrade) addHosts(count int, app string) (added []*fleet.Host) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), slowdown*startLimit)
	defer cancel()

	for range count {
		h, err := u.fleet.Add(ctx, "--script-root", app)
		if err != nil {
			u.t.Fatal(err)
		}

		u.ignoreAnswers(h.URL())
		u.awaitCondition("the host is ready", startLimit,
			func() bool { return u.getStatus(h.URL()+"/api/health") == http.StatusOK })
		added = append(added, h)
	}

	return added
}

// stopHosts stops all given hosts at once, and waits until they have ended.
func (u *upgrade) stopHosts(hosts []*fleet.Host) {
	u.t.Helper()
	for _, h := range hosts {
		if err := h.Stop(); err != nil {
			u.t.Fatal(err)
		}
	}

	for _, h := range hosts {
		<-h.Done()
	}
}

// postInBackground posts the given number of versions of each path, from the version "first" on.
// The channel gets the accepted messages after the last post.
func (u *upgrade) postInBackground(paths, versions, first int) <-chan []postedMessage {
	accepted := make(chan []postedMessage, 1)
	go func() { accepted <- u.postBurstFrom(u.t.Context(), paths, versions, first) }()
	return accepted
}

// awaitMoreWrites waits until the CMS has got count further writes.
func (u *upgrade) awaitMoreWrites(count int) {
	u.t.Helper()
	before := u.readStats().Writes
	u.awaitCondition("messages are written", 2*time.Minute,
		func() bool { return u.readStats().Writes >= before+count })
}

// postScheduled posts messages that are due in 30 s, so that they are usually due after the first
// change of versions.
func (u *upgrade) postScheduled(count int) {
	u.t.Helper()
	for i := range count {
		body := versionedArticle(fmt.Sprintf("/scheduled/%d", i), 1)
		r, err := http.NewRequestWithContext(u.t.Context(), http.MethodPost, u.weir+"/api/messages",
			strings.NewReader(body))
		if err != nil {
			u.t.Fatal(err)
		}

		r.Header.Set("Content-Type", "application/xml")
		r.Header.Set("Weir-Deliver-After", "PT30S")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			u.t.Fatal(err)
		}

		_ = res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			u.t.Fatalf("a scheduled message was answered %s, want status 202", res.Status)
		}
	}
}

// postRejected posts a message that the CMS rejects.
func (u *upgrade) postRejected(text string) {
	u.t.Helper()
	path := fmt.Sprintf("/bad/%d", u.bad)
	u.bad++
	body := fmt.Sprintf(`<article path="%s" version="1"><title>bad: %s</title></article>`,
		path, text)
	res, err := http.Post(u.weir+"/api/messages", "application/xml", strings.NewReader(body))
	if err != nil || res.StatusCode != http.StatusAccepted {
		u.t.Fatalf("post a bad message: %v %v, want status 202 and no error", res, err)
	}

	_ = res.Body.Close()
}

// checkBooks waits until the lanes count the given number of delivered messages, all messages of
// postRejected as dead, and no waiting or scheduled messages. Then it checks the number of items in
// the CMS.
func (u *upgrade) checkBooks(delivered, items int) {
	u.t.Helper()
	type books struct {
		Lanes []struct{ Delivered, Dead, Waiting, Scheduled int }
	}
	var sum struct{ delivered, dead, left int }
	u.awaitCondition("the books balance", 2*time.Minute, func() bool {
		sum.delivered, sum.dead, sum.left = 0, 0, 0
		for _, l := range getJSON[books](u.system, u.weir+"/api/lanes").Lanes {
			sum.delivered, sum.dead, sum.left = sum.delivered+l.Delivered, sum.dead+l.Dead,
				sum.left+l.Waiting+l.Scheduled
		}
		return sum.delivered == delivered && sum.dead == u.bad && sum.left == 0
	})

	if st := u.checkRecord(); st.Items != items {
		u.t.Errorf("the CMS has %d items, want %d", st.Items, items)
	}
}

// checkRepost checks that this version recognizes the Idempotency-Key of a message that the
// previous version stored.
func (u *upgrade) checkRepost(m postedMessage) {
	u.t.Helper()
	path, _, _ := strings.Cut(m.Key, "@")
	again, err := u.postMessageOnce(path, m.version, keyOf(path, m.version))
	if err != nil || !again.Duplicate || again.ID != m.ID {
		u.t.Errorf("posting %s again was answered %+v (%v), want a duplicate of %s", path,
			again, err, m.ID)
	}
}
