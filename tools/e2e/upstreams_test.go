package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testkit/settings"
	"weir/internal/upstream"
)

const (
	newsroomKey = "newsroom-0123456789abcdef"
	shopSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// upstreamsYAML defines an upstream with a key and a quota of 60 messages a day, and an upstream
// that signs its requests.
const upstreamsYAML = `upstreams:
  - { name: newsroom, keys: ["${NEWSROOM_KEY}"], contracts: [article], dailyQuota: 60 }
  - { name: shop, signature: standard, secrets: ["${SHOP_SECRET}"] }
contracts:
`

// newUpstreamSystem starts a system with two instances and the upstreams of upstreamsYAML.
func newUpstreamSystem(t *testing.T) *system {
	t.Helper()
	return newSystemIn(t, []string{"NEWSROOM_KEY=" + newsroomKey, "SHOP_SECRET=" + shopSecret}, 2,
		"contracts:\n", upstreamsYAML)
}

// postSigned posts an article as the upstream "shop", and returns the status. The signature is
// computed from signedBody, so it is wrong if signedBody differs from the article.
func (s *system) postSigned(path, id, signedBody string, at time.Time) int {
	s.t.Helper()
	secret, err := upstream.ParseSecret(upstream.StandardWebhooks, shopSecret)
	if err != nil {
		s.t.Fatal(err)
	}

	h := http.Header{}
	sender := upstream.Sender{Name: "shop", Scheme: upstream.StandardWebhooks, Secret: secret}
	sender.AddTo(h, id, at, []byte(signedBody))

	return s.postWith(versionedArticle(path, 1), h)
}

func (s *system) postWith(body string, h http.Header) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.weir+"/api/messages",
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}

	req.Header = h
	h.Set("Content-Type", "application/xml")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()

	return resp.StatusCode
}

// avoidMidnight waits for the next day (UTC) if the current day ends within two minutes, because
// the quota begins anew each day.
func (s *system) avoidMidnight() {
	s.t.Helper()
	if time.Until(time.Now().UTC().Truncate(24*time.Hour).Add(24*time.Hour)) < 2*time.Minute {
		s.awaitCondition("the day is over", 3*time.Minute,
			func() bool { return time.Now().UTC().Hour() == 0 })
	}
}

// TestUpstreams_FilesOfAFolder puts more files into an upstream's folder of the inbox than the
// upstream's quota allows. The files over the quota stay in the inbox. Weir takes the files of all
// other folders.
func TestUpstreams_FilesOfAFolder(t *testing.T) {
	s := newSystemIn(t, []string{"NEWSROOM_KEY=" + newsroomKey, "SHOP_SECRET=" + shopSecret}, 1,
		"contracts:\n",
		upstreamsYAML, "log: { level: info }",
		"log: { level: info }\nintake: { files: { folders: ["+
			"{ folder: news, upstream: newsroom }, { folder: shop/web, upstream: shop }] } }")

	s.avoidMidnight()
	a := s.openAccount()
	for n := range 65 {
		s.dropFile(a, fmt.Sprintf("news/%02d.xml", n),
			versionedArticle(fmt.Sprintf("/n/%d", n%4), n+1), nil)
	}

	for n := range 5 {
		s.dropFile(a, fmt.Sprintf("shop/web/%d.xml", n),
			versionedArticle(fmt.Sprintf("/s/%d", n), 1), nil)
		s.dropFile(a, fmt.Sprintf("other/%d.xml", n),
			versionedArticle(fmt.Sprintf("/o/%d", n), 1), nil)
	}

	s.sendEvent(a)
	s.awaitCondition("all files but five are taken", time.Minute, func() bool {
		// Weir copies a file into the archive before it deletes the file in the inbox.
		return len(s.listFiles(a.Accepted(), true)) == 70 && len(s.listFiles(a.Inbox(), false)) == 5
	})

	if left := s.listFiles(a.Inbox(), false); !strings.HasPrefix(left[0], "news/") {
		t.Errorf("the inbox has %q, want the five files over the quota", left)
	}

	for name, want := range map[string]int{"newsroom": 60, "shop": 5} {
		found := getJSON[struct{ Messages []struct{ Upstream string } }](s,
			s.weir+"/api/messages?limit=200&upstream="+name)
		if len(found.Messages) != want {
			t.Errorf("upstream %s: got %d messages, want %d", name, len(found.Messages), want)
		}
	}

	s.awaitCondition("all messages are delivered", time.Minute,
		func() bool { return s.readStats().Writes == 70 })
	if st := s.readStats(); st.Duplicates != 0 || st.Inversions != 0 {
		t.Errorf("the CMS's record: got %+v, want each message written once, in order per key", st)
	}
}

// TestUpstreams_QueueOverTheQuota publishes more messages to an upstream's queue than the
// upstream's quota allows. The messages over the quota stay in the queue. Weir still accepts the
// messages of another queue.
func TestUpstreams_QueueOverTheQuota(t *testing.T) {
	s := newBareSystem(t)
	s.avoidMidnight()
	b := useSharedBroker(t)
	limited, free := declareQueue(t, b, "-limited"), declareQueue(t, b, "-free")
	limited.upstream = "newsroom"
	env := []string{"NEWSROOM_KEY=" + newsroomKey, "SHOP_SECRET=" + shopSecret}
	s.app = s.stageAppWith(strings.Replace(settings.YAML, "contracts:\n",
		upstreamsYAML, 1) + consumerYAML(b.URL(), "    prefetch: 3\n", limited, free))
	s.startStagedHost(env, []string{"--instances", "1"})
	consumer := s.startConsumer(s.app, env...)
	limited.publish(newArticles([]string{"/n/a", "/n/b"}, 1, 35)...)
	s.awaitCondition("the consumer reports the quota", time.Minute, func() bool {
		return strings.Contains(consumer.output.String(), "has used its daily quota of 60 messages")
	})
	free.publish(newArticles([]string{"/f"}, 1, 10)...)
	s.awaitWrites(70, time.Minute)
	if code := consumer.endProcess(syscall.SIGTERM); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}

	if n := limited.countReady(); n != 10 {
		t.Errorf("%d messages are in the queue, want the ten over the quota", n)
	}
}

// TestUpstreams_TwoInstancesShareAQuota posts to a host with two instances. Together the instances
// accept exactly as many messages as the quota allows. A repeated post does not count.
func TestUpstreams_TwoInstancesShareAQuota(t *testing.T) {
	s := newUpstreamSystem(t)
	s.avoidMidnight()
	accepted, refusedInARow := 0, 0
	for n := 0; refusedInARow < 40 && n < 400; n++ {
		body := versionedArticle(fmt.Sprintf("/q/%d", n), 1)
		h := http.Header{"Weir-Upstream-Key": {newsroomKey}, "Idempotency-Key": {fmt.Sprint(n)}}
		switch status := s.postWith(body, h); status {
		case http.StatusAccepted:
			accepted, refusedInARow = accepted+1, 0
			if n < 20 {
				if again := s.postWith(body, h.Clone()); again != http.StatusAccepted {
					t.Fatalf("repeat of message %d: got %d, want 202", n, again)
				}
			}

		case http.StatusTooManyRequests:
			refusedInARow++
		default:
			t.Fatalf("message %d: got %d, want 202 or 429", n, status)
		}
	}

	if accepted != 60 {
		t.Errorf("got %d messages of two instances, want the daily quota of 60", accepted)
	}

	found := getJSON[struct{ Messages []struct{ Upstream string } }](s,
		s.weir+"/api/messages?upstream=newsroom&limit=200")
	if len(found.Messages) != 60 || found.Messages[0].Upstream != "newsroom" {
		t.Errorf("the search: got %d messages, want 60 of newsroom", len(found.Messages))
	}

	if code := s.postSigned("/shop", "id-1", versionedArticle("/shop", 1), time.Now()); code !=
		http.StatusAccepted {
		t.Errorf("another upstream: got %d, want 202", code)
	}

	if strings.Contains(s.output.String(), newsroomKey) {
		t.Error("the log has the key of an upstream, want none")
	}
}

// TestUpstreams_OnlyTheirMessagesAreFiled checks that Weir refuses posts without credentials and
// with wrong ones. Weir accepts posts with right credentials, by HTTP and from `weir send`.
func TestUpstreams_OnlyTheirMessagesAreFiled(t *testing.T) {
	s := newUpstreamSystem(t)
	body, now := versionedArticle("/signed", 1), time.Now()
	for name, code := range map[string]int{
		"nothing":       s.postWith(body, http.Header{}),
		"wrong key":     s.postWith(body, http.Header{"Weir-Upstream-Key": {newsroomKey + "x"}}),
		"another body":  s.postSigned("/signed", "id-1", body+" ", now),
		"old timestamp": s.postSigned("/signed", "id-1", body, now.Add(-6*time.Minute)),
	} {
		if code != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", name, code)
		}
	}

	for range 3 { // repeats of a signed request make no further message
		if code := s.postSigned("/signed", "id-1", body, now); code != http.StatusAccepted {
			t.Fatalf("signed: got %d, want 202", code)
		}
	}

	file := t.TempDir() + "/a.xml"
	writeFile(t, file, versionedArticle("/file", 1), 0o600)
	if r := s.runByAPI("send", "--wait", "--upstream-key", newsroomKey, file); r.code != 0 {
		t.Errorf("weir send: got %+v, want it delivered", r)
	}

	if r := s.runByAPI("send", file); r.code == 0 {
		t.Errorf("weir send without a key: got %+v, want it refused", r)
	}

	found := getJSON[struct{ Messages []struct{ Upstream string } }](s, s.weir+"/api/messages")
	if len(found.Messages) != 2 {
		t.Errorf("got %+v, want one message of shop and one of newsroom", found.Messages)
	}
}
