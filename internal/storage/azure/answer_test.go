package azure_test

import (
	"io"
	"net/http"
	"testing"

	"weir/internal/storage"
)

// If a proxy answers in place of storage, or an answer is incomplete, a later read can succeed, so
// the error is Unavailable. If Weir cannot read a row, a later read would fail, too, so the error
// is Other.
func TestRead_AnswerWithoutRows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   storage.Kind
	}{
		"Page":        {"<html>Sign in</html>", storage.Unavailable},
		"Cut":         {`{"value":[{"PartitionKey":"p"`, storage.Unavailable},
		"WithoutETag": {`{"value":[{"PartitionKey":"p","RowKey":"k"}]}`, storage.Other},
		"BrokenNumber": {`{"value":[{"odata.etag":"W/1","n@odata.type":"Edm.Int64","n":"many"}]}`,
			storage.Other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, test.answer)
			})

			page, err := a.Table().Range(t.Context(), storage.Query{Partition: "p"})
			if storage.KindOf(err) != test.want || err == nil || page.Rows != nil {
				t.Errorf("range: got %v and the error %v, want no rows and an error of the kind %v",
					page.Rows, err, test.want)
			}
		})
	}
}

func TestGet_AnswerWithoutRow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   storage.Kind
	}{
		"Page":         {"<html>Sign in</html>", storage.Unavailable},
		"BrokenNumber": {`{"n@odata.type":"Edm.Int64","n":"many"}`, storage.Other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, test.answer)
			})
			if row, err := a.Table().Get(t.Context(), "p", "k"); storage.KindOf(err) != test.want ||
				err == nil {
				t.Errorf("get: got %v and the error %v, want an error of the kind %v", row,
					err, test.want)
			}
		})
	}
}
