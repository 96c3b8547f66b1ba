package httpio

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// SetVersion sets the header ETag to the tag of a version, and returns this tag.
func SetVersion(w http.ResponseWriter, version string) string {
	tag := weir.Tag(version)
	w.Header().Set("ETag", tag)
	return tag
}

// NotModified answers 304 if the client already has the version and the host relays a 304. It sets the ETag,
// and reports whether it has answered.
func NotModified(w http.ResponseWriter, r *http.Request, version string) bool {
	tag := SetVersion(w, version)
	if !relaysNotModified(r) {
		return false
	}
	for given := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if given = strings.TrimPrefix(strings.TrimSpace(given), "W/"); given == tag || given == "*" {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

// IfMatch returns the weir.Tag of the version that the client wants to change; empty = any version.
func IfMatch(r *http.Request) (string, error) {
	switch given := r.Header.Values("If-Match"); {
	case len(given) == 0 || (len(given) == 1 && strings.TrimSpace(given[0]) == "*"):
		return "", nil
	case len(given) == 1:
		tag := strings.TrimPrefix(strings.TrimSpace(given[0]), "W/")
		if inner, ok := strings.CutPrefix(tag, `"`); ok && len(inner) > 1 && strings.HasSuffix(inner, `"`) &&
			strings.Count(inner, `"`) == 1 {
			return tag, nil
		}
	}
	return "", &weir.Error{Kind: weir.Malformed, Op: "if-match",
		Message: "If-Match must be one ETag as it was answered, or *"}
}

// ReadReason returns the query parameter "reason", which is the operator's reason for the change; "" = the
// parameter is missing. If the reason is too long, the error is Invalid.
func ReadReason(r *http.Request) (string, error) {
	reason := strings.TrimSpace(r.URL.Query().Get("reason"))
	if utf8.RuneCountInString(reason) > weir.MaxReason {
		message := fmt.Sprintf("has more than %d characters", weir.MaxReason)
		return "", &weir.Error{Kind: weir.Invalid, Op: "reason", Message: message,
			Problems: []weir.Problem{{Path: "reason", Message: message}}}
	}
	return reason, nil
}

// MessageID parses the path value "id". The error is NotFound.
func MessageID(r *http.Request) (weir.ID, error) {
	id, err := weir.ParseID(r.PathValue("id"))
	if err != nil {
		return weir.ID{}, &weir.Error{Kind: weir.NotFound, Op: "message id", Message: "this is not a message's id",
			Err: err}
	}
	return id, nil
}
