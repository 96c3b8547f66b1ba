package invoke_test

import (
	"strings"
	"testing"

	"weir/internal/invoke"
)

// Payloads in the form in which the host sends them.
const (
	jsonMessage = `{"Data":{"myQueueItem":"\"{\\\"jobId\\\":42,\\\"who\\\":\\\"Ann\\\",\\\"opts\\\":{\\\"dry\\\":true},\\\"tags\\\":[\\\"a\\\",\\\"b\\\"]}\""},"Metadata":{"DequeueCount":"1","ExpirationTime":"2026-01-15T09:30:00+00:00","Id":"\"9f2c1c0e-5a5e-4a5e-8d3a-0c1b2a3d4e5f\"","InsertionTime":"2026-01-08T09:30:00+00:00","NextVisibleTime":"2026-01-08T09:40:01+00:00","PopReceipt":"\"AgAAAAMAAAAAAAAA6mz1Yxyz2wE=\"","sys":{"MethodName":"ProcessJob","UtcNow":"2026-01-08T09:30:01.2345678Z","RandGuid":"24ad4c06-24ad-4e5b-8294-3da9714877e9"},"jobId":"\"42\"","who":"\"Ann\"","opts":{"dry":true}}}`
	textMessage = `{"Data":{"myQueueItem":"\"hello world\""},"Metadata":{"DequeueCount":"1","Id":"\"9f2c1c0e-5a5e-4a5e-8d3a-0c1b2a3d4e5f\"","sys":{"MethodName":"ProcessJob"}}}`
	tick        = `{"Data":{"tick":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":{"Last":"2026-01-08T09:25:00.0012345+00:00","Next":"2026-01-08T09:30:00+00:00","LastUpdated":"2026-01-08T09:25:00.0012345+00:00"},"IsPastDue":true}},"Metadata":{"sys":{"MethodName":"Sweep","UtcNow":"2026-01-08T09:30:00.0123456Z","RandGuid":"…"}}}`
)

func mustDecode(t *testing.T, body string) invoke.Invocation {
	t.Helper()
	inv, err := invoke.Decode(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestInvocation_Text_AsTheHostWritesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"JSONMessage": {jsonMessage,
			`{"jobId":42,"who":"Ann","opts":{"dry":true},"tags":["a","b"]}`},
		"PlainMessage":  {textMessage, "hello world"},
		"EncodedOnce":   {`{"Data":{"myQueueItem":"weir lane 1.3"}}`, "weir lane 1.3"},
		"Number":        {`{"Data":{"myQueueItem":"\"42\""}}`, "42"},
		"NumberOnce":    {`{"Data":{"myQueueItem":"42"}}`, "42"},
		"Empty":         {`{"Data":{"myQueueItem":"\"\""}}`, ""},
		"Escapes":       {`{"Data":{"myQueueItem":"\"a\\\"b\\\\c\\nä<&>/\""}}`, "a\"b\\c\nä<&>/"},
		"NullIsLiteral": {`{"Data":{"myQueueItem":"null"}}`, "null"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := mustDecode(t, c.body).Text("myQueueItem")
			if err != nil || got != c.want {
				t.Errorf("Text = %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestInvocation_Text_Refuses(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"a":1}`, `7`, `null`, `["x"]`} {
		if got, err := mustDecode(t, `{"Data":{"item":`+value+`}}`).Text("item"); err == nil {
			t.Errorf("Text of %s = %q; want an error", value, got)
		}
	}

	if _, err := mustDecode(t, textMessage).Text("other"); err == nil {
		t.Error("Text of a missing binding = no error, want one")
	}
}

func TestInvocation_Timer_AsTheHostWritesIt(t *testing.T) {
	t.Parallel()
	got, err := mustDecode(t, tick).Timer("tick")
	if err != nil {
		t.Fatal(err)
	}

	if !got.IsPastDue {
		t.Errorf("Timer = %+v; want IsPastDue true", got)
	}

	for _, body := range []string{`{"Data":{"tick":null}}`, `{"Data":{"tick":"\"x\""}}`,
		`{"Data":{}}`} {
		if _, err := mustDecode(t, body).Timer("tick"); err == nil {
			t.Errorf("Timer of %s = no error, want one", body)
		}
	}

	unmonitored := mustDecode(t,
		`{"Data":{"tick":{"Schedule":{"AdjustForDST":false},"ScheduleStatus":null,"IsPastDue":false}}}`)
	if got, err := unmonitored.Timer("tick"); err != nil || got != (invoke.Timer{}) {
		t.Errorf("Timer = %+v, %v; want the zero value", got, err)
	}
}

func TestInvocation_Meta(t *testing.T) {
	t.Parallel()
	inv := mustDecode(t, jsonMessage)
	for name, want := range map[string]string{
		"DequeueCount":  "1",
		"dequeuecount":  "1",
		"Id":            "9f2c1c0e-5a5e-4a5e-8d3a-0c1b2a3d4e5f",
		"InsertionTime": "2026-01-08T09:30:00+00:00",
		"jobId":         "42",
		"sys":           "",
		"missing":       "",
	} {
		if got := inv.Meta(name); got != want {
			t.Errorf("Meta(%q) = %q; want %q", name, got, want)
		}
	}
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", `{"Data":"x"}`, `{"Data":{}} more`, `{"Data":{}`,
		`{"Data":{"x":"` + strings.Repeat("a", 1<<20) + `"}}`} {
		if _, err := invoke.Decode(strings.NewReader(body)); err == nil {
			t.Errorf("Decode(%.40q) = no error, want one", body)
		}
	}
}
