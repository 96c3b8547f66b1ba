package azure

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"weir/internal/storage"
)

// changeset is a transaction as it is sent: an HTTP request for each operation, in a
// multipart body within another. The SDK makes the same bytes (a test compares them), but
// reads and writes each row's JSON twice on the way and does not double quotes in keys; at
// the head of a lane this is what takes most of a receiver's time.
type changeset struct {
	bytes.Buffer
	to       address
	boundary string
}

// address is where a table's rows are: rows' keys stand between table and query.
type address struct {
	table     string
	plain     string // the query, with its ?; empty unless the account is signed in to by one
	formatted string // the same with the format that answers have
}

// addressOf makes the table's address from that of the transaction's request.
func addressOf(batch url.URL, table string) address {
	query := batch.Query()
	a := address{plain: query.Encode()}
	if a.plain != "" {
		a.plain = "?" + a.plain
	}
	query.Set("$format", minimal)
	a.formatted = "?" + query.Encode()
	batch.RawQuery = ""
	a.table = strings.TrimSuffix(batch.String(), "$batch") + table
	return a
}

// newChangeset writes the operations, which have been checked.
func newChangeset(to address, partition string, ops []storage.Op) (*changeset, error) {
	c := &changeset{to: to, boundary: rand.Text()}
	c.Grow(1024 * len(ops))
	c.text("--batch_", c.boundary, "\r\nContent-Type: multipart/mixed; boundary=changeset_", c.boundary, "\r\n\r\n")
	for i, op := range ops {
		c.text("--changeset_", c.boundary, "\r\nContent-Transfer-Encoding: binary\r\nContent-Type: application/http\r\n\r\n")
		if err := c.operation(partition, op); err != nil {
			return nil, refused(storage.Other, i, err)
		}
		c.text("\r\n")
	}
	c.text("--changeset_", c.boundary, "--\r\n\r\n--batch_", c.boundary, "--\r\n")
	return c, nil
}

func (c *changeset) text(parts ...string) {
	for _, p := range parts {
		c.WriteString(p)
	}
}

// operation writes one operation's request.
func (c *changeset) operation(partition string, op storage.Op) error {
	method, accept, row, query := "PUT ", "application/json", rowOf(partition, op.Key), c.to.plain
	switch op.Kind {
	case storage.Insert:
		method, accept, row, query = "POST ", minimal, "", c.to.formatted
	case storage.Merge:
		method = "PATCH "
	case storage.Delete:
		method, accept, query = "DELETE ", minimal, c.to.formatted
	}
	c.text(method, c.to.table, row, query, " HTTP/1.1\r\nAccept: ", accept, "\r\n")
	if op.Kind == storage.Delete {
		c.text("DataServiceVersion: \r\nIf-Match: ", match(op), "\r\nx-ms-version: \r\n\r\n")
		return nil
	}
	entity, err := encodeRow(partition, op.Key, op.Values)
	if err != nil {
		return err
	}
	c.text("Content-Length: ", strconv.Itoa(len(entity)), "\r\nContent-Type: application/json\r\nDataServiceVersion: \r\n")
	switch op.Kind {
	case storage.Insert:
		c.text("Prefer: return-no-content\r\n")
	case storage.Replace, storage.Merge:
		// Without the header, storage takes these for upserts.
		c.text("If-Match: ", match(op), "\r\n")
	}
	c.text("x-ms-version: \r\n\r\n")
	c.Write(entity)
	return nil
}

const minimal = "application/json;odata=minimalmetadata"

func match(op storage.Op) string {
	if op.IfMatch == "" {
		return string(storage.AnyETag)
	}
	return string(op.IfMatch)
}

// rowOf is the address of a row below its table's.
func rowOf(partition, key string) string {
	return "(PartitionKey='" + escape(partition) + "',RowKey='" + escape(key) + "')"
}

func escape(key string) string { return url.PathEscape(strings.ReplaceAll(key, "'", "''")) }

// send puts the changeset into a request.
func (c *changeset) send(req *policy.Request) error {
	return req.SetBody(streaming.NopCloser(bytes.NewReader(c.Bytes())), "multipart/mixed; boundary=batch_"+c.boundary)
}

// encodeRow writes the JSON of a row. Whatever JSON cannot tell apart is annotated.
func encodeRow(partition, key string, values map[string]any) ([]byte, error) {
	b := append(make([]byte, 0, 512), `{"PartitionKey":`...)
	b = appendText(b, partition)
	b = appendText(append(b, `,"RowKey":`...), key)
	for name, v := range values {
		if v == nil {
			continue
		}
		b = appendText(append(b, ','), name)
		var err error
		if b, err = appendValue(append(b, ':'), name, v); err != nil {
			return nil, fmt.Errorf("value %s: %w", name, err)
		}
	}
	return append(b, '}'), nil
}

// appendValue writes a value, and behind it the note of its type where it needs one.
func appendValue(b []byte, name string, v any) ([]byte, error) {
	edm := ""
	switch v := v.(type) {
	case string:
		return appendText(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		b, edm = append(strconv.AppendInt(append(b, '"'), v, 10), '"'), "Edm.Int64"
	case []byte:
		b, edm = append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"'), "Edm.Binary"
	case time.Time:
		b, edm = append(v.UTC().Truncate(100*time.Nanosecond).AppendFormat(append(b, '"'), timeLayout), '"'), "Edm.DateTime"
	case float64:
		text, err := json.Marshal(encodeFloat(v))
		if err != nil {
			return nil, err
		}
		b, edm = append(b, text...), "Edm.Double"
	default:
		return nil, fmt.Errorf("a %T cannot be stored", v)
	}
	b = appendText(append(b, ','), name+typeSuffix)
	return append(append(append(b, `:"`...), edm...), '"'), nil
}

// appendText writes a JSON string.
func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // of a string: it cannot fail
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
