package write

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/wake"
	"weir/internal/wire"
)

// VersionForgetter asks the holder to forget the newest delivered version of a key and contract,
// and returns that version; see lane.Requests.ForgetVersion.
type VersionForgetter interface {
	ForgetVersion(ctx context.Context, key, contract string) (lane.LatestVersion, error)
}

// ForgetVersion serves POST /api/versions/forget. All fields are needed.
type ForgetVersion struct {
	Log    VersionForgetter
	Waker  wake.Ringer
	LaneOf func(key string) int
	Logger *slog.Logger
}

// forgetRequest is the body of a request. Both fields are needed: a missing contract must not mean
// all contracts.
type forgetRequest struct {
	Key      *string `json:"key"`
	Contract string  `json:"contract"`
}

// ServeHTTP implements http.Handler. The answer has the status 202, and the version that the holder
// will forget.
func (f *ForgetVersion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, err := f.askToForget(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusAccepted, list)
	f.Waker.Ring(list.Lane)
	f.Logger.Info("write: forgetting of a version asked", "invocation_id", httpio.InvocationID(r),
		"message_id", list.Versions[0].MessageID, "lane", list.Lane)
}

func (f *ForgetVersion) askToForget(w http.ResponseWriter,
	r *http.Request) (wire.VersionList, error) {
	key, contract, err := readForgetRequest(w, r)
	if err != nil {
		return wire.VersionList{}, err
	}

	latest, err := f.Log.ForgetVersion(r.Context(), key, contract)
	return wire.VersionList{Key: key, Lane: f.LaneOf(key), Versions: []wire.Version{{
		Contract: contract, Version: latest.Version, MessageID: latest.ID.String(),
		Warning: latest.Warning}}}, err
}

func readForgetRequest(w http.ResponseWriter, r *http.Request) (key, contract string, err error) {
	var in forgetRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return "", "", err
	}

	switch {
	case in.Key == nil:
		return "", "", invalidError("key", "the key is needed")
	case len(*in.Key) > maxKey:
		return "", "", invalidError("key", "the key is too long")
	case in.Contract == "":
		return "", "", invalidError("contract", "the contract is needed")
	}

	return *in.Key, in.Contract, nil
}
