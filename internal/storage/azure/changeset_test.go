package azure_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// connections has the connection string of an account with a key, and of an account with a SAS.
var connections = map[string]string{
	"key": connectTo("http://127.0.0.1:1"),
	"sas": "AccountName=acct;SharedAccessSignature=sv=2024-11-04&ss=bqt&sig=a%2Fb%3D",
}

func TestTransact_SameRequestAsTheSDK(t *testing.T) {
	t.Parallel()
	for name, connection := range connections {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := new(recorder), new(recorder)
			a, err := azure.Open(azure.Config{ConnectionString: connection, Prefix: "abc",
				Transport: ours})
			must(t, err)
			_, err = a.Table().Transact(t.Context(), "p ü+&", everyKind)
			if err == nil {
				t.Fatal("got no error, want one: no answer came")
			}

			c, err := aztables.NewServiceClientFromConnectionString(connection,
				&aztables.ClientOptions{ClientOptions: policy.ClientOptions{
					Transport: &http.Client{Transport: theirs},
					Retry:     policy.RetryOptions{MaxRetries: -1}}})

			must(t, err)
			_, err = c.NewClient("abclanes").SubmitTransaction(t.Context(), everyKindForSDK(t), nil)
			if err == nil {
				t.Fatal("got no error, want one: no answer came")
			}

			if got, want := ours.requestLines(t), theirs.requestLines(t); !slices.Equal(got, want) {
				t.Errorf("sent:\n%s\n\nwant:\n%s", strings.Join(got, "\n"),
					strings.Join(want, "\n"))
			}
		})
	}
}

var everyKind = []storage.Op{
	{Kind: storage.Insert, Key: "a",
		Values: map[string]any{"s": "<ü \"\\\n>", "n": int64(-7), "b": true, "f": 1.5, "z": nil}},
	{Kind: storage.Replace, Key: "b x+&", IfMatch: `W/"1"`,
		Values: map[string]any{"raw": []byte{0, 1, 255}}},
	{Kind: storage.Merge, Key: "c",
		Values: map[string]any{"at": time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)}},
	{Kind: storage.Upsert, Key: "d=;,@$", Values: map[string]any{"e": ""}},
	{Kind: storage.Delete, Key: "e", IfMatch: `W/"2"`},
	{Kind: storage.Delete, Key: "ü"},
}

// everyKindForSDK returns the operations of everyKind as operations of the SDK.
func everyKindForSDK(t *testing.T) []aztables.TransactionAction {
	match := func(s string) *azcore.ETag { e := azcore.ETag(s); return &e }
	row := func(key string, values map[string]any) []byte {
		m := map[string]any{"PartitionKey": "p ü+&", "RowKey": key}
		for k, v := range values {
			m[k] = v
		}

		b, err := json.Marshal(m)
		must(t, err)
		return b
	}

	return []aztables.TransactionAction{
		{ActionType: aztables.TransactionTypeAdd,
			Entity: row("a", map[string]any{"s": "<ü \"\\\n>", "n": "-7",
				"n@odata.type": "Edm.Int64", "b": true, "f": 1.5, "f@odata.type": "Edm.Double"})},
		{ActionType: aztables.TransactionTypeUpdateReplace, IfMatch: match(`W/"1"`),
			Entity: row("b x+&", map[string]any{"raw": "AAH/", "raw@odata.type": "Edm.Binary"})},
		{ActionType: aztables.TransactionTypeUpdateMerge, IfMatch: match("*"),
			Entity: row("c", map[string]any{"at": "2026-01-02T03:04:05.0000006Z",
				"at@odata.type": "Edm.DateTime"})},
		{ActionType: aztables.TransactionTypeInsertReplace,
			Entity: row("d=;,@$", map[string]any{"e": ""})},
		{ActionType: aztables.TransactionTypeDelete, IfMatch: match(`W/"2"`),
			Entity: row("e", nil)},
		{ActionType: aztables.TransactionTypeDelete, Entity: row("ü", nil)},
	}
}

// recorder is a transport that keeps the last request, and returns an error.
type recorder struct {
	url, kind string
	body      []byte
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.url, r.kind = req.URL.String(), req.Header.Get("Content-Type")
	r.body, _ = io.ReadAll(req.Body)
	return nil, errors.New("no answer")
}

var boundary = regexp.MustCompile(`(batch|changeset)_[-0-9a-zA-Z]+`)

// requestLines returns the lines of the recorded request. So that requests can be compared,
// requestLines removes the random boundaries and sorts the values of each row by name.
func (r *recorder) requestLines(t *testing.T) []string {
	lines := strings.Split(boundary.ReplaceAllString(r.url+"\r\n"+r.kind+"\r\n"+string(r.body),
		"$1"), "\r\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "{") {
			continue
		}

		var m map[string]any
		must(t, json.Unmarshal([]byte(l), &m))
		b, err := json.Marshal(m)
		must(t, err)
		lines[i] = string(b)
	}

	return lines
}
