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
	"weir/internal/wire"
)

// Pauser pauses and resumes lanes and keys; see lane.Pauses. Pause and Resume are idempotent.
type Pauser interface {
	Pause(ctx context.Context, p weir.Pause) error
	Resume(ctx context.Context, lane int, key string) error
	ReadPauses(ctx context.Context) ([]weir.Pause, error)
}

// Pause serves POST /api/pause. All fields are needed.
type Pause struct {
	Pauser Pauser
	// NameAuthor returns the name of the sender of a request. The name is stored as weir.Pause.By.
	NameAuthor func(*http.Request) string
	Lanes      int
	LaneOf     func(key string) int
	Now        func() time.Time
	Logger     *slog.Logger
}

// target selects all lanes, one lane, or a key.
type target struct {
	All  bool    `json:"all"`
	Lane *int    `json:"lane"`
	Key  *string `json:"key"`
}

// pauseRequest is the body of a request. It repeats the fields of the type target: if the type were
// embedded, the JSON decoder would write "target.lane" for "lane" in an error.
type pauseRequest struct {
	All    bool       `json:"all"`
	Lane   *int       `json:"lane"`
	Key    *string    `json:"key"`
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
	For    string     `json:"for"`
}

// maxKey limits the bytes of an ordering key.
const maxKey = 1 << 10

// ServeHTTP implements http.Handler.
func (f *Pause) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pauses, err := f.pauseTarget(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	writePauses(w, pauses)
}

// pauseTarget pauses the target of a request, and returns all pauses that are then in force.
func (f *Pause) pauseTarget(w http.ResponseWriter, r *http.Request) ([]weir.Pause, error) {
	var in pauseRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return nil, err
	}

	lanes, key, err := target{in.All, in.Lane, in.Key}.resolveLanes(f.Lanes, f.LaneOf)
	if err != nil {
		return nil, err
	}

	p, err := in.buildPause(f.Now())
	if err != nil {
		return nil, err
	}

	p.By = f.NameAuthor(r)
	err = forEachLane(lanes, func(i int) error {
		paused := p
		paused.Lane, paused.Key = lanes[i], key
		return f.Pauser.Pause(r.Context(), paused)
	})

	f.Logger.Info("write: paused", "lane", lanes, "key", key, "delay_ms",
		pauseLength(p).Milliseconds(), "err", err)
	if err != nil {
		return nil, err
	}

	return f.Pauser.ReadPauses(r.Context())
}

// pauseLength returns the length of a pause; 0 = the pause has no set end.
func pauseLength(p weir.Pause) time.Duration {
	if p.Until.IsZero() {
		return 0
	}
	return p.Until.Sub(p.Since)
}

func writePauses(w http.ResponseWriter, pauses []weir.Pause) {
	httpio.WriteJSON(w, http.StatusOK, wire.PauseList{Pauses: wire.NewPauses(pauses)})
}

// resolveLanes returns the selected lanes, out of n, and the selected key; "" = whole lanes are
// selected. laneOf returns the lane of a key.
func (t target) resolveLanes(n int, laneOf func(key string) int) (lanes []int, key string,
	err error) {
	named := 0
	for _, given := range []bool{t.All, t.Lane != nil, t.Key != nil} {
		if given {
			named++
		}
	}

	switch {
	case named != 1:
		return nil, "", invalidError("", `give one of "all": true, "lane" and "key"`)
	case t.All:
		for number := range n {
			lanes = append(lanes, number)
		}
		return lanes, "", nil

	case t.Lane != nil && (*t.Lane < 0 || *t.Lane >= n):
		return nil, "", &weir.Error{Kind: weir.NotFound, Op: "pause",
			Message: fmt.Sprintf("there is no lane %d: the last lane is %d, and the first is 0",
				*t.Lane, n-1)}

	case t.Lane != nil:
		return []int{*t.Lane}, "", nil
	case *t.Key == "" || len(*t.Key) > maxKey || strings.ContainsFunc(*t.Key, unicode.IsControl):
		return nil, "", invalidError("key",
			fmt.Sprintf("a key has 1 to %d bytes and no control characters", maxKey))
	}

	return []int{laneOf(*t.Key)}, *t.Key, nil
}

// buildPause returns the requested pause without Lane, Key and By.
func (in *pauseRequest) buildPause(now time.Time) (weir.Pause, error) {
	p := weir.Pause{Reason: strings.TrimSpace(in.Reason), Since: now}
	switch {
	case p.Reason == "":
		return p, invalidError("reason",
			"a reason is needed, for other operators who find the pause")
	case utf8.RuneCountInString(p.Reason) > weir.MaxReason:
		return p, invalidError("reason",
			fmt.Sprintf("the reason has %d characters and may have %d",
				utf8.RuneCountInString(p.Reason), weir.MaxReason))

	case in.Until != nil && in.For != "":
		return p, invalidError("until", "give until or for, or neither")
	case in.Until != nil:
		p.Until = *in.Until
	case in.For != "":
		until, err := weir.ParseDelay(in.For, now)
		if err != nil {
			return p, invalidError("for", "for "+err.Error())
		}
		p.Until = until
	}

	if !p.Until.IsZero() && (!p.Until.After(now) || !p.Until.Before(weir.Forever)) {
		return p, invalidError("until",
			"the end of a pause lies in the future, and before the year 9999")
	}

	return p, nil
}

func invalidError(path, message string) error {
	p := weir.Problem{Path: path, Message: message}
	return &weir.Error{Kind: weir.Invalid, Op: "write", Message: p.Sentence(),
		Problems: []weir.Problem{p}}
}

// forEachLane calls do with each index of lanes, a few at a time, and makes all calls even if some
// fail. If calls fail, forEachLane returns one of these errors:
//   - the error for lanes[0], if there is only one lane
//   - the error for lanes[0], if all calls fail and this error is a Conflict
//   - otherwise an error that names the failed lanes, and that asks the client to repeat the
//     request
func forEachLane(lanes []int, do func(i int) error) error {
	failed := make([]error, len(lanes))
	err := lane.ForEach(len(lanes), func(i int) error { failed[i] = do(i); return failed[i] })
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

	return &weir.Error{Kind: weir.Unavailable, Op: "pause", RetryAfter: 2 * time.Second,
		Err: errors.Join(failed...),
		Message: fmt.Sprintf("it was done for %d of %d lanes, and not for lanes %v: ask again",
			len(lanes)-len(numbers), len(lanes), numbers)}
}
