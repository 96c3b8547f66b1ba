package delay

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	busyCode = "ServerBusy"
	busyText = "The server is busy."
)

// newBusyResponse returns an answer with 503 ServerBusy in the service's format. Blobs and queues
// use XML and a header with the error code. Tables use OData's JSON without this header.
func newBusyResponse(service string, req *http.Request) *http.Response {
	id := uuid.NewString()
	words := fmt.Sprintf("%s\nRequestId:%s\nTime:%s", busyText, id,
		time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z"))
	header := http.Header{"Server": {"Windows-Azure-Storage"}, "X-Ms-Request-Id": {id},
		"X-Ms-Version": {req.Header.Get("X-Ms-Version")},
		"Date":         {time.Now().UTC().Format(http.TimeFormat)}}
	body := busyXML(words)
	if service == table {
		header.Set("Content-Type",
			"application/json;odata=minimalmetadata;streaming=true;charset=utf-8")
		body = busyJSON(words)
	} else {
		header.Set("Content-Type", "application/xml")
		header.Set("X-Ms-Error-Code", busyCode)
	}

	return &http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Request: req,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

func busyXML(words string) string {
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: busyCode, Message: words})
	if err != nil {
		panic(err) // impossible: a struct of strings
	}

	return `<?xml version="1.0" encoding="utf-8"?>` + string(text)
}

func busyJSON(words string) string {
	text, err := json.Marshal(map[string]any{"odata.error": map[string]any{
		"code": busyCode, "message": map[string]string{"lang": "en-US", "value": words}}})
	if err != nil {
		panic(err) // impossible: maps of strings
	}
	return string(text)
}
