package write

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/weir"
)

// Pauser pauses and resumes lanes and keys; see lane.Store. Both can be repeated.
type Pauser interface {
	Pause(ctx context.Context, p weir.Pause) error
	Resume(ctx context.Context, lane int, key string) error
	Pauses(ctx context.Context) ([]weir.Pause, error)
}

// Caller has a lane looked at soon, wherever it is held.
type Caller interface{ Call(lane int) }

// Pause serves POST /api/pause. All fields are needed.
type Pause struct {
	Pauser Pauser
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

// target is what a request is about: all lanes, one, or a key.
type target struct {
	All  bool    `json:"all"`
	Lane *int    `json:"lane"`
	Key  *string `json:"key"`
}

// pauseRequest has target's fields as its own: embedded ones would be called "target.lane" in
// an error.
type pauseRequest struct {
	All    bool       `json:"all"`
	Lane   *int       `json:"lane"`
	Key    *string    `json:"key"`
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
	For    string     `json:"for"`
}

// maxKey is the size of an ordering key in bytes.
const maxKey = 1 << 10

// ServeHTTP implements http.Handler.
func (f *Pause) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pauses, err := f.pause(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	answerPauses(w, pauses)
}

// pause gives all that is paused afterwards.
func (f *Pause) pause(w http.ResponseWriter, r *http.Request) ([]weir.Pause, error) {
	var in pauseRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return nil, err
	}
	lanes, key, err := target{in.All, in.Lane, in.Key}.lanes(f.Lanes)
	if err != nil {
		return nil, err
	}
	p, err := in.pause(f.Now())
	if err != nil {
		return nil, err
	}
	err = eachLane(lanes, func(i int) error {
		paused := p
		paused.Lane, paused.Key = lanes[i], key
		return f.Pauser.Pause(r.Context(), paused)
	})
	f.Logger.Info("write: paused", "lane", lanes, "key", key, "delay", lasts(p), "err", err)
	if err != nil {
		return nil, err
	}
	return f.Pauser.Pauses(r.Context())
}

// lasts is how long a pause is; 0 = until resumed.
func lasts(p weir.Pause) time.Duration {
	if p.Until.IsZero() {
		return 0
	}
	return p.Until.Sub(p.Since)
}

func answerPauses(w http.ResponseWriter, pauses []weir.Pause) {
	httpio.WriteJSON(w, http.StatusOK, struct {
		Pauses []httpio.Pause `json:"pauses"`
	}{httpio.DescribePauses(pauses)})
}

// lanes are those that a request is about, and its key, where it is about one.
func (t target) lanes(n int) (lanes []int, key string, err error) {
	named := 0
	for _, given := range []bool{t.All, t.Lane != nil, t.Key != nil} {
		if given {
			named++
		}
	}
	switch {
	case named != 1:
		return nil, "", invalid("", `give one of "all": true, "lane" and "key"`)
	case t.All:
		for number := range n {
			lanes = append(lanes, number)
		}
		return lanes, "", nil
	case t.Lane != nil && (*t.Lane < 0 || *t.Lane >= n):
		return nil, "", &weir.Error{Kind: weir.NotFound, Op: "pause", Message: fmt.Sprintf("there is no lane %d: they are numbered from 0 to %d", *t.Lane, n-1)}
	case t.Lane != nil:
		return []int{*t.Lane}, "", nil
	case *t.Key == "" || len(*t.Key) > maxKey || strings.ContainsFunc(*t.Key, unicode.IsControl):
		return nil, "", invalid("key", fmt.Sprintf("a key has 1 to %d bytes and no control characters", maxKey))
	}
	return []int{lane.Of(*t.Key, n)}, *t.Key, nil
}

// pause is what is asked for, without its lane and key.
func (in *pauseRequest) pause(now time.Time) (weir.Pause, error) {
	p := weir.Pause{Reason: strings.TrimSpace(in.Reason), Since: now}
	switch {
	case p.Reason == "":
		return p, invalid("reason", "a reason is needed: whoever finds the pause will want to know")
	case utf8.RuneCountInString(p.Reason) > weir.MaxReason:
		return p, invalid("reason", fmt.Sprintf("the reason has %d characters and may have %d", utf8.RuneCountInString(p.Reason), weir.MaxReason))
	case in.Until != nil && in.For != "":
		return p, invalid("until", "give until or for, or neither")
	case in.Until != nil:
		p.Until = *in.Until
	case in.For != "":
		until, err := weir.ParseDelay(in.For, now)
		if err != nil {
			return p, invalid("for", "for "+err.Error())
		}
		p.Until = until
	}
	if !p.Until.IsZero() && (!p.Until.After(now) || !p.Until.Before(weir.Forever)) {
		return p, invalid("until", "the end of a pause lies in the future, and before the year 9999")
	}
	return p, nil
}

func invalid(path, message string) error {
	return &weir.Error{Kind: weir.Invalid, Op: "pause", Message: message, Problems: []weir.Problem{{Path: path, Message: message}}}
}

// eachLane does something for several lanes, a few at a time. Where it fails for some of
// several, the error names them: to ask again for all does no harm.
func eachLane(lanes []int, do func(i int) error) error {
	failed := make([]error, len(lanes))
	err := lane.Each(len(lanes), func(i int) error { failed[i] = do(i); return failed[i] })
	if err == nil || len(lanes) == 1 {
		return err
	}
	var numbers []int
	for i, err := range failed {
		if err != nil {
			numbers = append(numbers, lanes[i])
		}
	}
	if weir.KindOf(err) == weir.Conflict && len(numbers) == len(lanes) {
		return err
	}
	return &weir.Error{Kind: weir.Unavailable, Op: "pause", RetryAfter: 2 * time.Second, Err: errors.Join(failed...),
		Message: fmt.Sprintf("it was done for %d of %d lanes, and not for lanes %v: ask again", len(lanes)-len(numbers), len(lanes), numbers)}
}
