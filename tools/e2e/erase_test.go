package e2e_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// personalKey and personalText are the content that the erasure must remove: an ordering key, and a
// text in bodies and in the note of an edit.
const personalKey, personalText = "/people/ada-lovelace", "Ada King, Countess of Lovelace"

// The test erases two dead messages, and kills handlers meanwhile. Afterwards storage and the
// answers of the API have none of the erased content. The stage, the counters and the audit log
// remain.
func TestErase_LeavesNoContent(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s", "attempts: 5", "attempts: 2",
		"min: 1s, max: 5m", "min: 50ms, max: 100ms")
	s.setFaults(fmt.Sprintf(`{"rejectText":%q}`, personalText))
	photo := randomText(200 << 10) // makes the body too large for a row
	body := fmt.Sprintf(`<article path=%q version="1"><title>%s</title><photo>%s</photo></article>`,
		personalKey, personalText, photo)
	address, id := s.postBody(body)
	s.awaitStageAt(address, "dead")
	next, _ := s.postBody(fmt.Sprintf(`<article path=%q version="2"><title>%s</title></article>`,
		personalKey, personalText))
	s.awaitStageAt(next, "dead")
	if code, _, said := s.requestJSON("POST", address+"/edit?note="+url.QueryEscape(personalText), body); code != 202 {
		t.Fatalf("edit: got %d %v, want 202", code, said)
	}

	s.awaitCondition("the edited message is dead again", time.Minute, func() bool {
		_, _, said := s.requestJSON("GET", address, "")
		return said["stage"] == "dead" && said["replays"] == 1.0
	})

	if found := s.findInStorage(personalText, personalKey); len(found) == 0 {
		t.Fatal("got no stored text before the erasure, want some, because otherwise the search is wrong")
	}

	for turn, at := range []string{address, next} {
		s.killNext(turn)
		s.awaitCondition("the message is erased", 2*time.Minute,
			func() bool { return s.postStatus(at+"/erase") == http.StatusOK })
	}

	s.awaitCondition("storage has no text of the message", time.Minute,
		func() bool { return len(s.findInStorage(personalText, personalKey)) == 0 })
	s.checkErased(address, id)
	s.checkErasureIsAudited(id)
	s.checkOthersAfterErasure()
}

func (s *system) checkErased(address, id string) {
	s.t.Helper()
	_, _, said := s.requestJSON("GET", address, "")
	if said["stage"] != "dead" || said["erasedAt"] == nil ||
		said["key"] != lane.ErasedKey(personalKey) ||
		said["attempts"] == 0.0 {
		s.t.Errorf("got %v, want a dead message that was erased, with its attempts", said)
	}

	s.requestStatus(404, "GET", "/api/messages/"+id+"/body", "")
	s.requestStatus(409, "POST", "/api/messages/"+id+"/replay", "")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/erase", "")

	for _, path := range []string{"/api/messages?text=Lovelace",
		"/api/messages?key=" + url.QueryEscape(personalKey)} {
		if answer, _ := s.requestStatus(200, "GET", path, ""); !strings.Contains(answer,
			`"messages":[]`) {
			s.t.Errorf("%s: got %s, want no message", path, answer)
		}
	}

	for _, path := range []string{"/api/messages/" + id, "/api/messages/" + id + "/attempts",
		"/api/lanes", "/api/audit",
		"/api/errors", "/api/dashboard/messages/" + id, "/api/dashboard/audit",
		"/api/dashboard/errors"} {
		answer, _ := s.requestStatus(200, "GET", path, "")
		if strings.Contains(answer, personalText) || strings.Contains(answer, personalKey) {
			s.t.Errorf("%s: got %s, want nothing of the erased content", path, answer)
		}
	}
}

func (s *system) checkErasureIsAudited(id string) {
	s.t.Helper()
	answer, _ := s.requestStatus(200, "GET", "/api/audit?subject="+id, "")
	for _, want := range []string{`"action":"erase"`, `"action":"edit"`} {
		if !strings.Contains(answer, want) {
			s.t.Errorf("audit: got %s, want %s", answer, want)
		}
	}
}

// checkOthersAfterErasure checks that Weir refuses to erase a scheduled message, and still delivers
// a new message. It also checks the counters.
func (s *system) checkOthersAfterErasure() {
	s.t.Helper()
	s.setFaults(`{}`)
	s.requestStatus(409, "POST",
		"/api/messages/"+s.postAccepted(personalKey, "Weir-Deliver-After", "PT1H")+"/erase", "")
	address, _ := s.postBody(articleXML(personalKey, 3))
	s.awaitStageAt(address, "delivered")
	balance := s.readBalance()
	if balance.Accepted != 4 || balance.Dead != 2 || balance.Delivered != 1 ||
		balance.Waiting != 1 {
		s.t.Errorf("got %+v, want 4 accepted, 2 dead, 1 delivered, 1 waiting", balance)
	}
}

// A mistaken version, far too high, supersedes all later messages of its key. After an operator has
// made Weir forget that version, Weir delivers later messages again, although the test kills
// handlers.
func TestForgetVersion_DeliversTheKeyAgain(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s", "version: ./@version\n",
		"version: ./@version\n    supersede: true\n")
	const path = "/news/1"
	first, _ := s.postBody(articleXML(path, 17))
	s.awaitStageAt(first, "delivered")
	mistake, id := s.postBody(articleXML(path, 1_767_960_000_000))
	s.awaitStageAt(mistake, "delivered")
	if _, _, said := s.requestJSON("GET", mistake, ""); said["versionWarning"] == nil {
		t.Errorf("got %v, want a warning about the version", said)
	}

	silenced, _ := s.postBody(articleXML(path, 18))
	s.awaitStageAt(silenced, "superseded")

	if _, _, said := s.requestJSON("GET", silenced, ""); said["supersededBy"] != id ||
		said["versionWarning"] == nil {
		t.Errorf("got %v, want it superseded by %s, with the warning", said, id)
	}

	if answer, _ := s.requestStatus(200, "GET", "/api/versions?key="+path, ""); !strings.Contains(answer,
		`"version":"1767960000000"`) {
		t.Errorf("versions: got %s, want the mistaken one", answer)
	}

	s.killNext(0)
	s.awaitCondition("the command to forget is accepted", time.Minute, func() bool {
		return s.runByAPI("versions", "forget", path, "--contract", "article").code == 0
	})
	s.killNext(1)
	s.awaitCondition("the version is forgotten", 2*time.Minute, func() bool {
		answer, _ := s.requestStatus(200, "GET", "/api/versions?key="+path, "")
		return strings.Contains(answer, `"versions":[]`)
	})

	again, _ := s.postBody(articleXML(path, 19))
	s.awaitStageAt(again, "delivered")
	older, _ := s.postBody(articleXML(path, 18))
	s.awaitStageAt(older, "superseded")
	if got := fmt.Sprint(slices.Compact(s.writtenVersions(path))); got != "[17 1767960000000 19]" {
		t.Errorf("written: got %s, want [17 1767960000000 19]", got)
	}

	if answer, _ := s.requestStatus(200, "GET", "/api/audit?action=version.forget", ""); !strings.Contains(answer,
		path) {
		t.Errorf("audit: got %s, want the forgotten key", answer)
	}
}

// findInStorage returns the names of the rows and blobs that have one of the texts; see
// searchStorage. It repeats a search that storage, on a busy machine, did not answer in time.
func (s *system) findInStorage(texts ...string) (places []string) {
	s.t.Helper()
	s.awaitCondition("storage answers a search", time.Minute, func() bool {
		var err error
		places, err = s.searchStorage(texts)
		if err != nil && !storage.Is(err, storage.Unavailable) {
			s.t.Fatal(err)
		}
		return err == nil
	})

	return places
}

// searchStorage searches lane 0 of the first epoch, the audit log and the blobs of bodies. It
// returns the names of the rows and blobs that have one of the texts, uncompressed or compressed.
func (s *system) searchStorage(texts []string) (places []string, err error) {
	account, err := azure.Open(azure.Config{ConnectionString: s.storage.ConnectionString(),
		Prefix: "weir"})
	if err != nil {
		return nil, err
	}
	defer account.Close()

	for _, partition := range []string{rows.Partition(1, 0), "audit"} {
		for q := (storage.Query{Partition: partition}); ; {
			page, err := account.Table().Range(s.t.Context(), q)
			if err != nil {
				return nil, err
			}

			for _, row := range page.Rows {
				q.After = row.Key
				for column, value := range row.Values {
					if hasText(value, texts) {
						places = append(places, row.Key+" "+column)
					}
				}
			}

			if !page.More {
				break
			}
		}
	}

	blobs, err := account.Bodies().List(s.t.Context(), "", "")
	if err != nil {
		return nil, err
	}

	for _, blob := range blobs.Infos {
		data, err := account.Bodies().Get(s.t.Context(), blob.Name)
		if storage.Is(err, storage.NotFound) {
			continue // the blob was removed meanwhile
		}
		if err != nil {
			return nil, err
		}

		if hasText(data, texts) {
			places = append(places, "blob "+blob.Name)
		}
	}

	return places, nil
}

// hasText reports whether a stored value has one of the texts, uncompressed or compressed.
func hasText(value any, texts []string) bool {
	plain := fmt.Sprint(value)
	if data, isBytes := value.([]byte); isBytes {
		// fails for uncompressed values
		expanded, _ := io.ReadAll(flate.NewReader(bytes.NewReader(data)))
		plain = string(data) + string(expanded)
	}

	return slices.ContainsFunc(texts,
		func(text string) bool { return strings.Contains(plain, text) })
}
