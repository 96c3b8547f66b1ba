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

// changeset is the body of a transaction's request: an HTTP request for each operation, in a nested
// multipart body. Weir does not let the SDK encode this body, because the SDK decodes and encodes
// each row's JSON twice, which took most of a receiver's CPU time. The SDK's body is the same,
// except that the SDK does not escape quotes in keys; see TestTransact_SameRequestAsTheSDK.
type changeset struct {
	bytes.Buffer
	table    tableAddress
	boundary string
}

// tableAddress has the common parts of the addresses of a table's rows. An address is url, then the
// row's path, then query or formatQuery.
type tableAddress struct {
	url         string
	query       string // begins with "?"; empty without a SAS
	formatQuery string // query with the parameter for the answer's format added
}

// newTableAddress derives a table's address from batch, the address of a transaction's request.
func newTableAddress(batch url.URL, table string) tableAddress {
	query := batch.Query()
	a := tableAddress{query: query.Encode()}
	if a.query != "" {
		a.query = "?" + a.query
	}

	query.Set("$format", minimalMetadata)
	a.formatQuery = "?" + query.Encode()
	batch.RawQuery = ""
	a.url = strings.TrimSuffix(batch.String(), "$batch") + table

	return a
}

// newChangeset encodes operations that passed checkOps.
func newChangeset(to tableAddress, partition string, ops []storage.Op) (*changeset, error) {
	c := &changeset{table: to, boundary: rand.Text()}
	c.Grow(1024 * len(ops))
	c.writeText("--batch_", c.boundary, "\r\nContent-Type: multipart/mixed; boundary=changeset_",
		c.boundary, "\r\n\r\n")

	for i, op := range ops {
		c.writeText("--changeset_", c.boundary,
			"\r\nContent-Transfer-Encoding: binary\r\nContent-Type: application/http\r\n\r\n")
		if err := c.writeOperation(partition, op); err != nil {
			return nil, refusedError(storage.Other, i, err)
		}
		c.writeText("\r\n")
	}

	c.writeText("--changeset_", c.boundary, "--\r\n\r\n--batch_", c.boundary, "--\r\n")

	return c, nil
}

func (c *changeset) writeText(parts ...string) {
	for _, p := range parts {
		c.WriteString(p)
	}
}

func (c *changeset) writeOperation(partition string, op storage.Op) error {
	method, accept, row, query := "PUT ", "application/json", rowPath(partition, op.Key),
		c.table.query
	switch op.Kind {
	case storage.Insert:
		method, accept, row, query = "POST ", minimalMetadata, "", c.table.formatQuery
	case storage.Merge:
		method = "PATCH "
	case storage.Delete:
		method, accept, query = "DELETE ", minimalMetadata, c.table.formatQuery
	}

	c.writeText(method, c.table.url, row, query, " HTTP/1.1\r\nAccept: ", accept, "\r\n")

	if op.Kind == storage.Delete {
		c.writeText("DataServiceVersion: \r\nIf-Match: ", ifMatchHeader(op),
			"\r\nx-ms-version: \r\n\r\n")
		return nil
	}

	entity, err := encodeRow(partition, op.Key, op.Values)
	if err != nil {
		return err
	}

	c.writeText("Content-Length: ", strconv.Itoa(len(entity)),
		"\r\nContent-Type: application/json\r\nDataServiceVersion: \r\n")

	switch op.Kind {
	case storage.Insert:
		c.writeText("Prefer: return-no-content\r\n")
	case storage.Replace, storage.Merge:
		// Without this header, storage treats a Replace or Merge as an upsert.
		c.writeText("If-Match: ", ifMatchHeader(op), "\r\n")
	}

	c.writeText("x-ms-version: \r\n\r\n")
	c.Write(entity)

	return nil
}

const minimalMetadata = "application/json;odata=minimalmetadata"

func ifMatchHeader(op storage.Op) string {
	if op.IfMatch == "" {
		return string(storage.AnyETag)
	}
	return string(op.IfMatch)
}

// rowPath returns the address of a row relative to its table.
func rowPath(partition, key string) string {
	return "(PartitionKey='" + escapeKey(partition) + "',RowKey='" + escapeKey(key) + "')"
}

func escapeKey(key string) string { return url.PathEscape(strings.ReplaceAll(key, "'", "''")) }

func (c *changeset) setBody(req *policy.Request) error {
	return req.SetBody(streaming.NopCloser(bytes.NewReader(c.Bytes())),
		"multipart/mixed; boundary=batch_"+c.boundary)
}

// encodeRow returns the JSON of a row, without nil values. If JSON does not have a value's type,
// the row also has an annotation: a field that names the type.
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

// appendValue appends a value, and the annotation of the value's type if JSON does not have the
// type.
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
		b, edm = append(v.UTC().Truncate(100*time.Nanosecond).AppendFormat(append(b, '"'),
			timeLayout), '"'),
			"Edm.DateTime"

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

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' || c == '<' ||
			c == '>' || c == '&' {
			text, _ := json.Marshal(s) // cannot fail for a string
			return append(b, text...)
		}
	}

	return append(append(append(b, '"'), s...), '"')
}
