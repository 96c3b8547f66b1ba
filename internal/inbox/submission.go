package inbox

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/storage"
	"weir/internal/wire"
)

// knownNames are the metadata of a file that Weir reads, beside the trace context. The field "header" is the header of
// a post that has the same meaning; "" = a parameter of a posted batch has this meaning. The names of metadata are
// identifiers, so they have no hyphen.
var knownNames = []struct{ metadata, header string }{
	{"weir_deliver_at", "Weir-Deliver-At"},
	{"weir_deliver_after", "Weir-Deliver-After"},
	{"weir_callback", "Weir-Callback"},
	{"weir_mode", ""},
	{"weir_split", ""},
}

// options has the media type of a file and the metadata that Weir reads.
type options struct {
	headers     http.Header // the metadata, as the headers of a post with the same meaning
	contentType string
	mode        string // mode of a batch; "" = none is given
	split       string // path of the parts of a batch; "" = none is given
}

// readOptions reads the metadata and the type of a file. It ignores metadata that has no meaning for Weir. It refuses
// an unknown name that begins with weir or deliver: if Weir ignored a misspelt due time, it would deliver an embargoed
// message at once.
func readOptions(f storage.File) (options, error) {
	o := options{headers: http.Header{}, contentType: contentTypeOf(f)}
	for name, value := range f.Metadata {
		folded := foldName(name)
		switch {
		case folded == "traceparent":
			o.headers.Add("Traceparent", value)
			continue
		case folded == "tracestate":
			o.headers.Add("Tracestate", value)
			continue
		case !strings.HasPrefix(folded, "weir") && !strings.HasPrefix(folded, "deliver"):
			continue
		}
		if err := o.readKnown(name, value); err != nil {
			return o, err
		}
	}
	return o, nil
}

// readKnown reads the value of one of knownNames, or refuses the name.
func (o *options) readKnown(name, value string) error {
	var names []string
	for _, known := range knownNames {
		names = append(names, known.metadata)
		if foldName(known.metadata) != foldName(name) {
			continue
		}
		switch known.metadata {
		case "weir_mode":
			if value != string(wire.BatchAll) && value != string(wire.BatchValid) {
				return filing.MalformedError("weir_mode must be all or valid")
			}
			o.mode = value
		case "weir_split":
			o.split = value
		default:
			o.headers.Add(known.header, value)
		}
		return nil
	}
	return filing.UnknownNameError("metadata", name, names)
}

// foldName returns a name in lower case without underscores.
func foldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// contentTypeOf returns the media type of a file. If the upload had no type, storage has stored
// application/octet-stream. In that case the name determines the type.
func contentTypeOf(f storage.File) string {
	kind := strings.TrimSpace(f.ContentType)
	switch lower := strings.ToLower(kind); {
	case lower == "application/x-zip-compressed":
		return "application/zip"
	case lower != "" && lower != "application/octet-stream" && lower != "binary/octet-stream":
		return kind
	case strings.EqualFold(path.Ext(f.Name), ".zip"):
		return "application/zip"
	}
	return "application/xml"
}

// isBatch reports whether type or metadata make a file a batch, whatever its root element is.
func (o *options) isBatch() bool {
	kind := strings.ToLower(o.contentType)
	return o.split != "" || o.mode != "" || strings.HasPrefix(kind, "application/zip") ||
		strings.HasPrefix(kind, "multipart/")
}

// newSubmission returns the submission of a file that is a message. A delay begins at the last modification, so
// that a repeated submission has the same due time.
func (o *options) newSubmission(filer *filing.Filer, f storage.File, body []byte) (filing.Submission, error) {
	s := filing.Submission{ContentType: o.contentType, Body: body}
	var err error
	if s.Options, err = filer.ReadOptions(o.headers, f.ModifiedAt); err != nil {
		return s, fmt.Errorf("metadata: %w", err)
	}
	s.Options.IdempotencyKey = keyOf(f)
	return s, nil
}

// newSpec returns the description of a file that is a batch.
func (o *options) newSpec(f storage.File) (batch.Spec, error) {
	for _, name := range []string{"Weir-Deliver-At", "Weir-Deliver-After", "Weir-Callback"} {
		if o.headers.Get(name) != "" {
			return batch.Spec{}, filing.MalformedError("a batch has no due time and no callback: the metadata of " +
				name + " is for a message")
		}
	}
	s := batch.Spec{ContentType: o.contentType, Mode: wire.BatchAll, IdempotencyKey: keyOf(f), File: archiveName(f)}
	if o.mode != "" {
		s.Mode = wire.BatchMode(o.mode)
	}
	if o.split != "" {
		s.Split = []string{o.split}
	}
	return s, nil
}
