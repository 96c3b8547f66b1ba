package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"weir/tools/browser"
	"weir/tools/delay"
)

// The drill causes incidents, one after the other, and checks that the page, the API and the
// commands lead an operator from each to its cause and its remedy. docs/operations.md has a section
// for each. If the environment variable DRILL_PICTURES names a folder, the tests store a picture of
// the page in each incident there.
type drill struct {
	*system
	tab *browser.Tab
}

func newDrill(s *system) *drill {
	tab := browser.Open(s.t, s.weir)
	tab.Size(1280, 900)
	return &drill{s, tab}
}

// drillLane has the fields of a lane that lead to causes.
type drillLane struct {
	Waiting, Dead, Retrying                                    int64
	PausedBy, PauseReason, LastError, RefusedKey, AttemptingID string
	RefusedKeys                                                int64
	LastErrorAt, LastDeliveredAt                               time.Time
	EmptyInSeconds                                             *float64
}

func (d *drill) readLane() drillLane {
	d.t.Helper()
	return getJSON[drillLane](d.system, d.weir+"/api/lanes/0")
}

// awaitOnPage waits until the overview shows all texts, and takes a picture.
func (d *drill) awaitOnPage(incident string, texts ...string) {
	d.t.Helper()
	for _, text := range texts {
		d.awaitCondition(fmt.Sprintf("%s: the page shows %q", incident, text), time.Minute,
			func() bool { return strings.Contains(d.readPage("/api/dashboard"), text) })
	}

	d.tab.Visit("/api/dashboard")
	folder := os.Getenv("DRILL_PICTURES")
	if folder == "" {
		return
	}

	name := filepath.Join(folder, strings.ReplaceAll(incident, " ", "-")+".png")
	if err := os.WriteFile(name, d.tab.Picture(), 0o600); err != nil {
		d.t.Error(err)
	}
}

func (d *drill) post(path string) string {
	d.t.Helper()
	_, id := d.postBody(articleWithTitle(path, 1, "drill"))
	return id
}

func (d *drill) awaitDelivered(id string) {
	d.t.Helper()
	d.awaitStageAt(d.weir+"/api/messages/"+id, "delivered")
}

var drillSettings = []string{"timeout: 30s ", "timeout: 20s ", "min: 1s, max: 5m",
	"min: 500ms, max: 2s"}

// The faults are those of the CMS and of upstreams.
func TestDrill(t *testing.T) {
	d := newDrill(newSystem(t, 1, drillSettings...))
	d.isDown()
	d.rejectsEverything()
	d.refusesOneKey()
	d.hangs()
	d.isFlooded()
	d.ticketsArePoisoned()
}

func (d *drill) isDown() {
	d.setFaults(`{"down":true}`)

	// of one key alone, the message could be the cause
	ids := []string{d.post("/down/1"), d.post("/down/2")}
	d.awaitCondition("the lane is paused", time.Minute,
		func() bool { return d.readLane().PausedBy == "cms" })
	d.awaitOnPage("CMS down", "The CMS is unavailable.", "503 Service Unavailable")

	// Between two pauses the lane tries the CMS again.
	d.awaitCondition("a pause has the words of the CMS, and no time until the lane is empty",
		time.Minute, func() bool {
			l := d.readLane()
			return strings.Contains(l.PauseReason, "503") && l.EmptyInSeconds == nil
		})

	d.setFaults(`{}`)
	for _, id := range ids {
		d.awaitDelivered(id)
	}

	d.awaitCondition("the error is over", time.Minute, func() bool {
		l := d.readLane()
		return l.LastDeliveredAt.After(l.LastErrorAt)
	})

	d.awaitOnPage("CMS up again", "over, delivered since")
}

func (d *drill) rejectsEverything() {
	d.setFaults(`{"rejectText":"drill"}`)
	var ids []string
	for n := range 3 {
		ids = append(ids, d.post(fmt.Sprintf("/rejected/%d", n)))
	}

	for _, id := range ids {
		d.awaitStageAt(d.weir+"/api/messages/"+id, "dead")
	}

	d.awaitOnPage("CMS rejects everything", "is not allowed here")
	found := d.readCluster()
	if found.Count != len(ids) || found.CMSStatus != http.StatusBadRequest {
		d.t.Errorf("got %+v, want one error of %d messages", found, len(ids))
	}

	env := []string{"WEIR_URL=" + d.weir}
	if out := d.runHandler(d.t.Context(), d.app, env, "dead", "list", "--errors"); !strings.Contains(out.stdout,
		"/rejected/") || !strings.Contains(out.stdout, found.Fingerprint) {
		d.t.Errorf("got %+v, want the error with a sample", out)
	}

	d.setFaults(`{}`)
	out := d.runHandler(d.t.Context(), d.app, env, "dead", "replay", "--fingerprint",
		found.Fingerprint, "--rate", "6000", "--yes", "--wait")
	if out.code != 0 || !strings.Contains(out.stdout, "3 delivered") {
		d.t.Errorf("got %+v, want 3 delivered", out)
	}
}

func (d *drill) refusesOneKey() {
	d.setFaults(`{"refuseUnder":"/stuck"}`)
	id := d.post("/stuck/a")
	d.awaitCondition("the refused key is known", time.Minute,
		func() bool { return d.readLane().RefusedKeys == 1 })
	d.awaitOnPage("CMS refuses one key", "The CMS does not take the messages of 1 key", "/stuck/a",
		"403 Forbidden")
	if strings.Contains(d.readPage("/api/dashboard"), "The CMS is unavailable.") {
		d.t.Error("the page calls the CMS unavailable, which takes all other keys")
	}

	if metrics := d.readPage("/api/metrics"); !strings.Contains(metrics, `weir_lane_refused_keys{lane="0"} 1`) ||
		!strings.Contains(metrics, `weir_lane_paused{by="cms",lane="0"} 0`) {
		d.t.Error("the metrics have no refused key, or call the CMS unavailable")
	}

	d.awaitDelivered(d.post("/flows/1"))
	d.setFaults(`{}`)
	d.awaitDelivered(id)
}

func (d *drill) hangs() {
	d.setFaults(`{"hang":true}`)
	first, second := d.post("/hangs/1"), d.post("/hangs/2")
	d.awaitCondition("the attempt is shown", time.Minute,
		func() bool { return d.readLane().AttemptingID == first })
	d.awaitOnPage("CMS hangs", "waits for the CMS", first)
	d.setFaults(`{}`)
	d.awaitDelivered(first)
	d.awaitDelivered(second)
	d.awaitCondition("no attempt is shown", time.Minute,
		func() bool { return d.readLane().AttemptingID == "" })
}

func (d *drill) isFlooded() {
	d.setFaults(`{"slow":"300ms"}`)
	const key, fingerprint, posts = "upstream-a-key", "c2f18d74", 40
	for n := range posts {
		code, _, said := d.requestJSON("POST", d.weir+"/api/messages",
			articleWithTitle(fmt.Sprintf("/flood/%d", n), 1, "flood"), "X-Functions-Key", key)
		if code != http.StatusAccepted {
			d.t.Fatalf("got %d %v, want 202", code, said)
		}
	}

	type history struct {
		Senders []struct {
			Sender   string
			Accepted int64
		}
	}

	senders := getJSON[history](d.system, d.weir+"/api/history").Senders
	if len(senders) == 0 || senders[0].Accepted < posts ||
		len(senders[0].Sender) != len(fingerprint) {
		d.t.Errorf("got the senders %+v, want %d posts of a key's fingerprint first",
			senders, posts)
	}

	d.awaitOnPage("upstream floods", "Senders", senders[0].Sender)
	out := d.runHandler(d.t.Context(), d.app, []string{"WEIR_URL=" + d.weir}, "cancel",
		"--key-prefix", "/flood/", "--yes", "--reason", "flood")
	if out.code != 0 {
		d.t.Errorf("got %+v, want the flood cancelled", out)
	}

	d.setFaults(`{}`)
	d.awaitDelivered(d.post("/urgent"))
}

func (d *drill) ticketsArePoisoned() {
	queue, err := azqueue.NewQueueClientFromConnectionString(d.storage.ConnectionString(),
		"weir-tickets-poison", nil)
	if err != nil {
		d.t.Fatal(err)
	}

	const tickets = 3
	for range tickets {
		// weir lane 1.0
		if _, err := queue.EnqueueMessage(d.t.Context(), "d2VpciBsYW5lIDEuMA==", nil); err != nil {
			d.t.Fatal(err)
		}
	}

	d.awaitOnPage("tickets are poisoned", "The host gave up 3 tickets")

	if metrics := d.readPage("/api/metrics"); !strings.Contains(metrics,
		"weir_tickets_poisoned_total 3") {
		d.t.Error("the metrics do not count the tickets")
	}
}

// A contract whose key has a misspelt path refuses every message.
func TestDrill_WrongContract(t *testing.T) {
	d := newDrill(newSystem(t, 1, "key: ./@path", "key: ./@pfad"))
	const posts = 6
	for n := range posts {
		code, _, said := d.requestJSON("POST", d.weir+"/api/messages",
			articleWithTitle(fmt.Sprintf("/a/%d", n), 1, "x"))
		if code != http.StatusUnprocessableEntity {
			t.Fatalf("got %d %v, want 422", code, said)
		}
	}

	d.awaitOnPage("wrong contract", "More messages are refused than accepted.", "./@pfad required",
		"contract article")
	if !strings.Contains(d.output.String(), `"reason":"./@pfad required"`) {
		t.Error("no line of the log has the rule")
	}

	if metrics := d.readPage("/api/metrics"); !strings.Contains(metrics,
		`weir_messages_refused_by_rule_total{contract="article",rule="./@pfad required",way="post"} 6`) {
		t.Error("the metrics do not count the refused messages by rule")
	}
}

// Storage throttles a third of the requests. All posts are accepted, and the check hints at the
// reason for the delay.
func TestDrill_StorageThrottles(t *testing.T) {
	s := newBareSystem(t)
	busy, err := delay.Start(t.Context(),
		delay.Config{Target: s.storage.ConnectionString(), BusyShare: 0.3})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = busy.Close() })
	s.app = s.stageApp()
	s.startStagedHost([]string{"AzureWebJobsStorage=" +
		busy.ConnectionString(s.storage.ConnectionString())}, []string{"--instances", "1"})
	d := newDrill(s)

	for n := range 20 {
		callAPI[postedMessage](s, http.MethodPost, "/api/messages", "application/xml",
			articleWithTitle(fmt.Sprintf("/t/%d", n), 1, "x"), http.StatusAccepted)
	}

	type checks struct {
		Status string
		Checks map[string]struct{ Detail string }
	}

	d.awaitCondition("the check hints at throttling", time.Minute, func() bool {
		return strings.Contains(getJSON[checks](s, s.weir+"/api/checks").Checks["storage"].Detail,
			"throttled")
	})

	d.awaitOnPage("storage throttles", "Storage throttles:", "Throttled, repeated")
}
