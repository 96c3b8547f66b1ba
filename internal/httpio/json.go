package httpio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"weir/internal/weir"
)

// maxJSON is the largest size of a body for ReadJSON, in bytes.
const maxJSON = 64 << 10

// ReadJSON reads a request's body of up to 64 KiB into a struct. The body must be one JSON value.
// Fields that the struct does not have are refused. So is a name that comes twice in one object,
// and one that differs from the name of a field in case only. Times are read by weir.ParseTime. The
// error is a *weir.Error: Unsupported, TooLarge or Malformed.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if err := checkJSONType(r); err != nil {
		return err
	}

	body, err := ReadBody(w, r, maxJSON)
	if err != nil {
		return err
	}

	return decodeJSON(body, into)
}

// ReadJSON is the function ReadJSON for a body of up to "limit" bytes, whose memory it reserves.
// The caller must call release when the struct is no longer needed, also after an error; release is
// never nil. The error can also be Unavailable, see ReadBody.
func (i *Intake) ReadJSON(w http.ResponseWriter, r *http.Request, limit int64,
	into any) (release func(), err error) {
	if err := checkJSONType(r); err != nil {
		return func() {}, err
	}

	body, release, err := i.ReadBody(w, r, limit)
	if err != nil {
		return release, err
	}

	return release, decodeJSON(body, into)
}

func checkJSONType(r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" {
		return &weir.Error{Kind: weir.Unsupported, Op: "read json",
			Message: "the Content-Type must be application/json"}
	}
	return nil
}

func decodeJSON(body []byte, into any) error {
	if len(body) == 0 {
		return malformedJSONError("the body is empty")
	}
	return DecodeJSON(body, into)
}

// DecodeJSON decodes a body that must be one JSON value; see ReadJSON. The error is Malformed.
func DecodeJSON(body []byte, into any) error {
	body, problem := checkJSON(body, reflect.TypeOf(into))
	if problem != "" {
		return malformedJSONError(problem)
	}

	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()

	if err := d.Decode(into); err != nil {
		return malformedJSONError("the body is not the JSON that is wanted here: " +
			describeJSONError(err))
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return malformedJSONError("there is text after the JSON")
	}

	return nil
}

// describeJSONError describes a decoder error without the terms of Go.
func describeJSONError(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case strings.HasPrefix(err.Error(), "Time.UnmarshalJSON"):
		return "a time must be a JSON string"
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Sprintf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return "a JSON " + wrong.Value + " where an object is wanted"
	}

	return strings.TrimPrefix(err.Error(), "json: ")
}

func malformedJSONError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "read json", Message: message}
}
