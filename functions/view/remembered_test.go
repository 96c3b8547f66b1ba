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

// rememberedReader has ids by "key|contract". Reading an id of the key "away" fails.
type rememberedReader map[string]string

func (f rememberedReader) FindRemembered(_ context.Context, key, contract string) (string, error) {
	if key == "away" {
		return "", &weir.Error{Kind: weir.Unavailable, Message: "away"}
	}
	return f[key+"|"+contract], nil
}

func TestRemembered(t *testing.T) {
	t.Parallel()
	reader := rememberedReader{"/a|new": "17", "/a|old": "4"}
	address := fmt.Sprintf(`{"key":"/a","lane":%d,"remembered":[`, lane.Of("/a", 3))
	for name, c := range map[string]struct {
		query  string
		status int
		want   string
	}{
		"ContractsOfTheSettings": {"key=/a", 200, address + `{"contract":"new","id":"17"}]}`},
		"RemovedContract": {"key=/a&contract=old&code=x", 200,
			address + `{"contract":"old","id":"4"}]}`},
		"None":             {"key=/b", 200, `"remembered":[]`},
		"NoKey":            {"", 400, "key is missing"},
		"UnknownParameter": {"key=/a&keys=/b", 400, "keys"},
		"StorageAway":      {"key=away", 503, "away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			(&view.Remembered{Reader: reader, Contracts: []string{"new", "other"},
				LaneOf: laneOfThree, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
				httptest.NewRequest(http.MethodGet, "/api/remembered?"+c.query, nil))

			if got := strings.TrimSpace(w.Body.String()); w.Code != c.status ||
				!strings.Contains(got, c.want) {
				t.Errorf("got %d %s, want %d %s", w.Code, got, c.status, c.want)
			}
		})
	}
}
