package write_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/write"
	"weir/internal/lane"
	"weir/internal/weir"
)

// versions is a log with one version and one remembered id, for the key k and the contract c.
type versions struct {
	called []int // the arguments of Call
}

func (f *versions) ForgetVersion(_ context.Context, key,
	contract string) (lane.LatestVersion, error) {
	if key != "k" || contract != "c" {
		return lane.LatestVersion{}, &weir.Error{Kind: weir.NotFound, Message: "no version"}
	}
	return lane.LatestVersion{Version: "9", Warning: "too high", ID: weir.ID{Epoch: 1, Seq: 3,
		Nonce: "00000000000000000000"}}, nil
}

func (f *versions) Ring(lane int) { f.called = append(f.called, lane) }

func (f *versions) ForgetRemembered(_ context.Context, key, contract string) (string, error) {
	_, err := f.ForgetVersion(context.Background(), key, contract)
	return "17", err
}

func TestForgetVersion(t *testing.T) {
	t.Parallel()
	checkForgetting(t, "version", `"versions":[{"contract":"c","version":"9","messageId":"`)
}

func TestForgetRemembered(t *testing.T) {
	t.Parallel()
	checkForgetting(t, "remembered", `"remembered":[{"contract":"c","id":"17"}]`)
}

// checkForgetting sends requests to forget a version or a remembered id: the argument "thing" is
// "version" or "remembered". The answer to the valid request must contain the argument "granted".
func checkForgetting(t *testing.T, thing, granted string) {
	t.Helper()
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"There":      {`{"key":"k","contract":"c"}`, 202, granted},
		"NotThere":   {`{"key":"k","contract":"d"}`, 404, "no version"},
		"EmptyKey":   {`{"key":"","contract":"c"}`, 404, "no version"},
		"NoKey":      {`{"contract":"c"}`, 422, "the key is needed"},
		"NoContract": {`{"key":"k"}`, 422, "the contract is needed"},
		"LongKey": {`{"key":"` + strings.Repeat("k", 1025) + `","contract":"c"}`, 422,
			"too long"},
		"UnknownField": {`{"key":"k","contract":"c","all":true}`, 400, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &versions{}
			r := httptest.NewRequest(http.MethodPost, "/api/"+thing+"/forget",
				strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handlers := map[string]http.Handler{
				"version": &write.ForgetVersion{Log: f, Waker: f, LaneOf: laneOfThree,
					Logger: quiet},
				"remembered": &write.ForgetRemembered{Log: f, Waker: f, LaneOf: laneOfThree,
					Logger: quiet},
			}

			handlers[thing].ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("got %d %s, want %d and %s", w.Code, w.Body, c.status, c.want)
			}

			if isAsked := c.status == 202; (len(f.called) == 1) != isAsked ||
				(isAsked && f.called[0] != lane.Of("k", 3)) {
				t.Errorf("got calls of the lanes %v; want one call of the key's lane: %t, else none", f.called, isAsked)
			}
		})
	}
}
