package view_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/view"
	"weir/internal/lane"
	"weir/internal/weir"
)

// versionReader has versions by "key|contract". Reading a version of the key "away" fails.
type versionReader map[string]lane.LatestVersion

func (f versionReader) FindLatestVersion(_ context.Context, key,
	contract string) (lane.LatestVersion, error) {
	if key == "away" {
		return lane.LatestVersion{}, &weir.Error{Kind: weir.Unavailable, Message: "away"}
	}
	return f[key+"|"+contract], nil
}

func TestVersions(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 7, Nonce: "00000000000000000000"}
	reader := versionReader{"/a|new": {Version: "9", ID: id, Warning: "too high"},
		"/a|old": {Version: "4", ID: id}}
	address := fmt.Sprintf(`{"key":"/a","lane":%d,"versions":[`, lane.Of("/a", 3))
	for name, c := range map[string]struct {
		query  string
		status int
		want   string
	}{
		"ContractsOfTheSettings": {"key=/a", 200, address +
			`{"contract":"new","version":"9","messageId":"` + id.String() +
			`","warning":"too high"}]}`},
		"RemovedContract": {"key=/a&contract=old&code=x", 200, address +
			`{"contract":"old","version":"4","messageId":"` + id.String() + `"}]}`},
		"None":             {"key=/b", 200, `"versions":[]`},
		"EmptyKey":         {"key=", 200, `"versions":[]`},
		"NoKey":            {"", 400, "key is missing"},
		"UnknownParameter": {"key=/a&keys=/b", 400, "keys"},
		"StorageAway":      {"key=away", 503, "away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			(&view.Versions{Reader: reader, Contracts: []string{"new", "other"},
				LaneOf: laneOfThree, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
				httptest.NewRequest(http.MethodGet, "/api/versions?"+c.query, nil))

			if got := strings.TrimSpace(w.Body.String()); w.Code != c.status ||
				!strings.Contains(got, c.want) {
				t.Errorf("got %d %s, want %d %s", w.Code, got, c.status, c.want)
			}
		})
	}
}

// laneOfThree returns the lane of a key, of three lanes.
func laneOfThree(key string) int { return lane.Of(key, 3) }
