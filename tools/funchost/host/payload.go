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

// members is a JSON object that keeps its order and, as .NET's dictionaries here, finds its
// names whatever their case. A name keeps its first spelling.
type members struct {
	names  []string
	values []json.RawMessage
}

func (m *members) set(name string, value json.RawMessage) {
	for i, n := range m.names {
		if strings.EqualFold(n, name) {
			m.values[i] = value
			return
		}
	}
	m.names, m.values = append(m.names, name), append(m.values, value)
}

// MarshalJSON keeps the order.
func (m *members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range m.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(literal(name))
		b.WriteByte(':')
		b.Write(m.values[i])
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// literal writes a JSON string as .NET does: only quotes, backslashes, control characters
// and three odd line ends are escaped.
func literal(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string and a buffer
	text := strings.TrimSuffix(b.String(), "\n")
	return json.RawMessage(strings.ReplaceAll(text, "\u0085", `\u0085`))
}

// twice is how a string goes over the wire: a JSON string holding a JSON string.
func twice(s string) json.RawMessage { return literal(string(literal(s))) }

// moment is how a time goes over the wire.
func moment(t *time.Time) json.RawMessage {
	if t == nil {
		return json.RawMessage("null")
	}
	return literal(t.UTC().Format("2006-01-02T15:04:05-07:00"))
}

// payload is the body of an invocation.
func payload(data, metadata *members) []byte {
	d, _ := data.MarshalJSON()
	m, _ := metadata.MarshalJSON()
	return fmt.Appendf(nil, `{"Data":%s,"Metadata":%s}`, d, m)
}

func system(function string, now time.Time) json.RawMessage {
	return fmt.Appendf(nil, `{"MethodName":%s,"UtcNow":"%s","RandGuid":"%s"}`,
		literal(function), now.UTC().Format("2006-01-02T15:04:05.0000000Z"), newGUID())
}

// queueMessage is what the payload needs of a dequeued message.
type queueMessage struct {
	id, popReceipt                 string
	text                           string // decoded
	dequeueCount                   int64
	inserted, expires, nextVisible *time.Time
}

func queuePayload(f *function, m queueMessage, now time.Time) []byte {
	data, meta := &members{}, &members{}
	if strings.EqualFold(f.trigger.DataType, "binary") {
		data.set(f.trigger.Name, literal(base64.StdEncoding.EncodeToString([]byte(m.text))))
	} else {
		data.set(f.trigger.Name, twice(m.text))
	}
	meta.set("DequeueCount", literal(strconv.FormatInt(m.dequeueCount, 10)))
	meta.set("ExpirationTime", moment(m.expires))
	meta.set("Id", twice(m.id))
	meta.set("InsertionTime", moment(m.inserted))
	meta.set("NextVisibleTime", moment(m.nextVisible))
	meta.set("PopReceipt", twice(m.popReceipt))
	meta.set("sys", system(f.name, now))
	mergeFields(meta, m.text)
	return payload(data, meta)
}

// mergeFields copies the top-level fields of a JSON object into the metadata, over what is
// there: this is why metadata is not to be trusted. Arrays and nulls are left out.
func mergeFields(meta *members, text string) {
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
		if value := field(raw); value != nil && !strings.HasSuffix(strings.ToLower(name.(string)), "trigger") {
			meta.set(name.(string), value)
		}
	}
}

// field encodes a message's field: objects as they are, the rest as .NET prints it.
func field(raw json.RawMessage) json.RawMessage {
	switch raw[0] {
	case '{':
		var b bytes.Buffer
		_ = json.Compact(&b, raw) // valid already
		return b.Bytes()
	case '[', 'n':
		return nil
	case 't':
		return twice("True")
	case 'f':
		return twice("False")
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		return twice(s)
	default:
		return twice(string(raw))
	}
}

// scheduleStatus is what is recorded of a timer.
type scheduleStatus struct {
	Last, Next, LastUpdated time.Time
}

func timerPayload(f *function, cron bool, status *scheduleStatus, pastDue bool, now time.Time) []byte {
	recorded := json.RawMessage("null")
	if status != nil {
		recorded = fmt.Appendf(nil, `{"Last":%s,"Next":%s,"LastUpdated":%s}`, precise(status.Last), precise(status.Next), precise(status.LastUpdated))
	}
	data, meta := &members{}, &members{}
	data.set(f.trigger.Name, fmt.Appendf(nil, `{"Schedule":{"AdjustForDST":%t},"ScheduleStatus":%s,"IsPastDue":%t}`, cron, recorded, pastDue))
	meta.set("sys", system(f.name, now))
	return payload(data, meta)
}

// precise writes a time as .NET does within objects: up to seven digits of a second.
func precise(t time.Time) json.RawMessage {
	return literal(t.Format("2006-01-02T15:04:05.9999999-07:00"))
}

func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
