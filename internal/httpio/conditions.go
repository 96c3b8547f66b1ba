package httpio

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// SetVersion sets the header ETag to weir.Tag(version), and returns this tag.
func SetVersion(w http.ResponseWriter, version string) string {
	tag := weir.Tag(version)
	w.Header().Set("ETag", tag)
	return tag
}

// NotModified answers 304 if the header If-None-Match has the version and the Functions host relays
// a 304 to the client. It always sets the header ETag. It reports whether it has answered.
func NotModified(w http.ResponseWriter, r *http.Request, version string) bool {
	tag := SetVersion(w, version)
	if !relaysNotModified(r) {
		return false
	}

	for given := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if given = strings.TrimPrefix(strings.TrimSpace(given), "W/"); given == tag ||
			given == "*" {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}

	return false
}

// IfMatch returns the tag in the header If-Match, in the form of weir.Tag. A client sends this
// header to change only the version that has the tag. If the header is missing or *, the result is
// empty. If the header is not one ETag, the error is Malformed.
func IfMatch(r *http.Request) (string, error) {
	switch given := r.Header.Values("If-Match"); {
	case len(given) == 0 || (len(given) == 1 && strings.TrimSpace(given[0]) == "*"):
		return "", nil
	case len(given) == 1:
		tag := strings.TrimPrefix(strings.TrimSpace(given[0]), "W/")
		if inner, ok := strings.CutPrefix(tag, `"`); ok && len(inner) > 1 &&
			strings.HasSuffix(inner, `"`) &&
			strings.Count(inner, `"`) == 1 {
			return tag, nil
		}
	}

	return "", &weir.Error{Kind: weir.Malformed, Op: "if-match",
		Message: "If-Match must be one ETag as it was answered, or *"}
}

// ReadReason returns the query parameter "reason", the operator's reason for a change. If the
// parameter is missing, the result is empty. If the reason is too long, the error is Invalid.
func ReadReason(r *http.Request) (string, error) {
	reason := strings.TrimSpace(r.URL.Query().Get("reason"))
	if utf8.RuneCountInString(reason) > weir.MaxReason {
		p := weir.Problem{Path: "reason",
			Message: fmt.Sprintf("has more than %d characters", weir.MaxReason)}
		return "", &weir.Error{Kind: weir.Invalid, Op: "reason", Message: p.Sentence(),
			Problems: []weir.Problem{p}}
	}

	return reason, nil
}

// MessageID parses the path value "id". If the value is no message id, the error is NotFound.
func MessageID(r *http.Request) (weir.ID, error) {
	id, err := weir.ParseID(r.PathValue("id"))
	if err != nil {
		return weir.ID{}, &weir.Error{Kind: weir.NotFound, Op: "message id",
			Message: "this is not a message's id", Err: err}
	}
	return id, nil
}
