package host

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// orderedObject is a JSON object that keeps the order of its names. Like the dictionaries of the
// real host, it ignores the case of names and keeps the first spelling of a name.
type orderedObject struct {
	names  []string
	values []json.RawMessage
}

func (m *orderedObject) setMember(name string, value json.RawMessage) {
	for i, n := range m.names {
		if strings.EqualFold(n, name) {
			m.values[i] = value
			return
		}
	}

	m.names, m.values = append(m.names, name), append(m.values, value)
}

// MarshalJSON encodes the members in their order.
func (m *orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')

	for i, name := range m.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encodeString(name))
		b.WriteByte(':')
		b.Write(m.values[i])
	}

	b.WriteByte('}')

	return b.Bytes(), nil
}

// encodeString encodes a JSON string as .NET does: it escapes only quotes, backslashes, control
// characters and the line breaks U+0085, U+2028 and U+2029.
func encodeString(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // cannot fail for a string and a buffer
	text := strings.TrimSuffix(b.String(), "\n")
	return json.RawMessage(strings.ReplaceAll(text, "\u0085", `\u0085`))
}

// encodeTwice encodes a string as the real host does in a payload: as a JSON string that contains a
// JSON string.
func encodeTwice(s string) json.RawMessage { return encodeString(string(encodeString(s))) }

// encodeTime encodes a time as the real host does in a payload; nil becomes null.
func encodeTime(t *time.Time) json.RawMessage {
	if t == nil {
		return json.RawMessage("null")
	}
	return encodeString(t.UTC().Format("2006-01-02T15:04:05-07:00"))
}

func encodePayload(data, metadata *orderedObject) []byte {
	d, _ := data.MarshalJSON()
	m, _ := metadata.MarshalJSON()
	return fmt.Appendf(nil, `{"Data":%s,"Metadata":%s}`, d, m)
}

func systemMetadata(function string, now time.Time) json.RawMessage {
	return fmt.Appendf(nil, `{"MethodName":%s,"UtcNow":"%s","RandGuid":"%s"}`,
		encodeString(function), now.UTC().Format("2006-01-02T15:04:05.0000000Z"), newGUID())
}

// queueMessage has the parts of a dequeued message that are in the payload.
type queueMessage struct {
	id, popReceipt                 string
	text                           string // after base64 decoding, if any
	dequeueCount                   int64
	inserted, expires, nextVisible *time.Time
}

func queuePayload(f *function, m queueMessage, now time.Time) []byte {
	data, meta := &orderedObject{}, &orderedObject{}
	if strings.EqualFold(f.trigger.DataType, "binary") {
		data.setMember(f.trigger.Name,
			encodeString(base64.StdEncoding.EncodeToString([]byte(m.text))))
	} else {
		data.setMember(f.trigger.Name, encodeTwice(m.text))
	}

	meta.setMember("DequeueCount", encodeString(strconv.FormatInt(m.dequeueCount, 10)))
	meta.setMember("ExpirationTime", encodeTime(m.expires))
	meta.setMember("Id", encodeTwice(m.id))
	meta.setMember("InsertionTime", encodeTime(m.inserted))
	meta.setMember("NextVisibleTime", encodeTime(m.nextVisible))
	meta.setMember("PopReceipt", encodeTwice(m.popReceipt))
	meta.setMember("sys", systemMetadata(f.name, now))
	mergeFields(meta, m.text)

	return encodePayload(data, meta)
}

// mergeFields copies the top-level fields of a message into the metadata, if the message is a JSON
// object. It leaves out arrays, nulls, and fields whose names end with "trigger". A copied field
// overwrites a field of the host with the same name, so a handler must not trust the metadata.
func mergeFields(meta *orderedObject, text string) {
	if t := strings.TrimSpace(text); !strings.HasPrefix(t, "{") || !strings.HasSuffix(t, "}") {
		return
	}

	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil || !json.Valid([]byte(text)) {
		return
	}

	for dec.More() {
		name, err := dec.Token()
		var raw json.RawMessage
		if err != nil || dec.Decode(&raw) != nil {
			return
		}

		if value := encodeField(raw); value != nil &&
			!strings.HasSuffix(strings.ToLower(name.(string)), "trigger") {
			meta.setMember(name.(string), value)
		}
	}
}

// encodeField encodes a field of a message. An object becomes compact JSON, and any other value
// becomes the text that .NET prints. For an array and for null encodeField returns nil.
func encodeField(raw json.RawMessage) json.RawMessage {
	switch raw[0] {
	case '{':
		var b bytes.Buffer
		_ = json.Compact(&b, raw) // cannot fail: raw is valid JSON
		return b.Bytes()

	case '[', 'n':
		return nil
	case 't':
		return encodeTwice("True")
	case 'f':
		return encodeTwice("False")
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		return encodeTwice(s)

	default:
		return encodeTwice(string(raw))
	}
}

// scheduleStatus is the stored status of a timer.
type scheduleStatus struct {
	Last, Next, LastUpdated time.Time
}

func timerPayload(f *function, cron bool, status *scheduleStatus, pastDue bool,
	now time.Time) []byte {
	recorded := json.RawMessage("null")
	if status != nil {
		recorded = fmt.Appendf(nil, `{"Last":%s,"Next":%s,"LastUpdated":%s}`,
			encodePreciseTime(status.Last),
			encodePreciseTime(status.Next), encodePreciseTime(status.LastUpdated))
	}

	data, meta := &orderedObject{}, &orderedObject{}
	data.setMember(f.trigger.Name, fmt.Appendf(nil,
		`{"Schedule":{"AdjustForDST":%t},"ScheduleStatus":%s,"IsPastDue":%t}`, cron,
		recorded, pastDue))
	meta.setMember("sys", systemMetadata(f.name, now))

	return encodePayload(data, meta)
}

// encodePreciseTime encodes a time as .NET does within objects: with up to seven decimal places of
// the second.
func encodePreciseTime(t time.Time) json.RawMessage {
	return encodeString(t.Format("2006-01-02T15:04:05.9999999-07:00"))
}

func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
