package inbox

import (
	"fmt"
	"net/http"
	"net/textproto"
	"path"
	"strings"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/storage"
	"weir/internal/wire"
)

// knownNames are the metadata names that Weir reads, except those of the trace context. header is
// the HTTP header with the same meaning. It is empty for the options of a batch, for which there is
// no header. Metadata names have underscores, because storage does not allow hyphens in them.
var knownNames = []struct{ metadata, header string }{
	{"weir_deliver_at", "Weir-Deliver-At"},
	{"weir_deliver_after", "Weir-Deliver-After"},
	{"weir_callback", "Weir-Callback"},
	{"weir_mode", ""},
	{"weir_split", ""},
}

// options has the media type and the metadata of a file.
type options struct {
	headers     http.Header // metadata for a message, as HTTP headers with the same meaning
	contentType string
	mode        string // mode of a batch; "" = not given
	split       string // path of the parts of a batch; "" = not given
}

// readOptions reads the media type and the metadata of a file. An unknown name that begins with
// weir or deliver, or that filing.CheckNames refuses, is an error. Otherwise Weir would ignore a
// misspelt due time, and deliver an embargoed message at once. Other unknown names are ignored.
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
			header := http.Header{textproto.CanonicalMIMEHeaderKey(name): nil}
			if err := filing.CheckNames("a file has no metadata ", header, metadataNames()...); err != nil {
				return o, err
			}
			continue
		}

		if err := o.readKnown(name, value); err != nil {
			return o, err
		}
	}

	return o, nil
}

func metadataNames() (names []string) {
	for _, known := range knownNames {
		names = append(names, known.metadata)
	}
	return names
}

// readKnown reads the value of a name in knownNames. For any other name it returns an error.
func (o *options) readKnown(name, value string) error {
	for _, known := range knownNames {
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

	return filing.UnknownNameError("metadata", name, metadataNames())
}

func foldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// contentTypeOf returns the media type of a file. If an upload has no type, storage records
// application/octet-stream. Then the name of the file determines the type.
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

// isBatch reports whether the media type or the metadata make the file a batch.
func (o *options) isBatch() bool {
	kind := strings.ToLower(o.contentType)
	return o.split != "" || o.mode != "" || strings.HasPrefix(kind, "application/zip") ||
		strings.HasPrefix(kind, "multipart/")
}

// newSubmission returns the submission of a file that is a message. A delay counts from the last
// modification of the file. So a repeated submission has the same due time.
func (o *options) newSubmission(filer *filing.Filer, f storage.File,
	body []byte) (filing.Submission, error) {
	s := filing.Submission{ContentType: o.contentType, Body: body}
	var err error
	if s.Options, err = filer.ReadOptions(o.headers, f.ModifiedAt); err != nil {
		return s, fmt.Errorf("metadata: %w", err)
	}

	s.Options.IdempotencyKey = keyOf(f)
	return s, nil
}

// newSpec returns the batch.Spec of a file that is a batch.
func (o *options) newSpec(f storage.File) (batch.Spec, error) {
	for _, name := range []string{"Weir-Deliver-At", "Weir-Deliver-After", "Weir-Callback"} {
		if o.headers.Get(name) != "" {
			return batch.Spec{},
				filing.MalformedError("a batch has no due time and no callback: the metadata of " +
					name + " is for a message")
		}
	}

	s := batch.Spec{ContentType: o.contentType, Mode: wire.BatchAll, IdempotencyKey: keyOf(f),
		File: archiveName(f)}
	if o.mode != "" {
		s.Mode = wire.BatchMode(o.mode)
	}

	if o.split != "" {
		s.Split = []string{o.split}
	}

	return s, nil
}
