package redact_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/redact"
	"weir/internal/weir"
)

const mark = contract.RedactedMark

func TestMask_HidesEachFormOfAValue(t *testing.T) {
	t.Parallel()
	m := redact.NewMask([]string{"Ann & Co", "DE12  3456", "", "B7", `a"b<c`, "Anna Kowalski-Smith",
		"ab<secret password"}, []string{"<b>Kowalska, <b>x", "<![CDATA[ab<secret password]]>"})

	for text, want := range map[string]string{
		"":                                 "",
		"customer Ann & Co is unknown":     "customer " + mark + " is unknown",
		"customer ANN &\n CO":              "customer " + mark,
		"xAnn%20%26%20Co, Ann+%26+Co":      "x" + mark + ", " + mark,
		"<n>Ann &amp; Co</n>":              "<n>" + mark + "</n>",
		`{"n":"Ann \u0026 Co"}`:            `{"n":"` + mark + `"}`,
		"de123456 and DE12 3456":           mark + " and " + mark,
		`a\"b\u003cc a&quot;b&lt;c`:        mark + " " + mark,
		"grade B7, (b7) not AB7 or B70":    "grade " + mark + ", (" + mark + ") not AB7 or B70",
		"QW5uICYgQ28= is base64":           mark + "= is base64",
		"422: the customer Ann & …":        "422: the customer " + mark + "…",
		"422: the customer Ann &...":       "422: the customer " + mark + "...",
		"422: the customer Ann &":          "422: the customer Ann &",
		strings.Repeat("x", 2044) + "DE12": strings.Repeat("x", 2044) + "DE12",
		strings.Repeat("x", 99) + "DE12…":  strings.Repeat("x", 99) + mark + "…",
		`not "Kowalska", <b>`:              `not "Kowalska", <b>`,
		"bad: secret pass": mark +
			" (this text is hidden, because it may repeat redacted values)",
		"only Kowalski-Sm is known": mark +
			" (this text is hidden, because it may repeat redacted values)",
	} {
		if got := m.Hide(text); got != want {
			t.Errorf("%.80q: got %.80q, want %.80q", text, got, want)
		}
	}
}

func TestMask_HidesAllForManyValues(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for i := range many {
		many[i] = strings.Repeat(string(rune('a'+i%26)), i+4)
	}

	for name, m := range map[string]redact.Mask{"many": redact.NewMask(many, nil),
		"long": redact.NewMask([]string{strings.Repeat("a", 17<<10)}, nil)} {
		if got := m.Hide("a text"); strings.Contains(got, "a text") ||
			!strings.Contains(got, mark) {
			t.Errorf("%s: got %q, want only the text that replaces a hidden text", name, got)
		}

		if got := m.Hide(""); got != "" {
			t.Errorf("%s: got %q for an empty text, want an empty text", name, got)
		}
	}

	if got := (redact.Mask{}).Hide("a text"); got != "a text" {
		t.Errorf("zero mask: got %q, want the text", got)
	}
}

// Each value has many words of one letter, and a long text consists of this letter. The lane waits
// while Weir masks a text. So the work is bounded.
func TestMask_BoundsTheWorkForManyWords(t *testing.T) {
	t.Parallel()
	values := make([]string, 80)
	for i := range values {
		values[i] = strings.Repeat("a ", 100) + strconv.Itoa(i)
	}

	m := redact.NewMask(values, nil)
	text := strings.Repeat("a", 1<<11)
	got := m.Hide(text)
	if want := mark + " (this text is hidden"; got != text && !strings.HasPrefix(got, want) {
		t.Errorf("got %.80q, want the text unchanged or hidden", got)
	}

	if got := m.Hide("x " + strings.Repeat("A", 100) + "79 y"); got != "x "+mark+" y" {
		t.Errorf("got %.80q, want the value hidden even in another case and without white space",
			got)
	}

	if got := redact.NewMask([]string{"test"}, nil).Hide("best estimate"); got != "best estimate" {
		t.Errorf("got %q, want the text unchanged, because the value has no white space within its word", got)
	}
}

func newContracts(t *testing.T) *contract.Set {
	t.Helper()
	s, err := contract.New([]contract.Definition{{Name: "person", Root: "person", Redact: []string{"./pan"}},
		{Name: "plain", Root: "plain"}}, contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A CMS repeats values in the escapes of its own language and framework. Package conceal has the
// whole list of forms.
func TestMask_HidesValuesInTheEscapesOfCMSs(t *testing.T) {
	t.Parallel()
	for value, texts := range map[string][]string{
		"Müller": {`{"message":"author M\u00fcller is unknown"}`,
			"<p>M&uuml;ller</p>", "Mu\u0308ller", `M\u00fcller`},
		"12/345/67": {`tax number 12\/345\/67 is wrong`,
			`{"inner":"{\"tax\":\"12\\/345\\/67\"}"}`},
		"01/02/1980":             {`born 01\/02\/1980`, "born 01.02.1980"},
		"O'Brien":                {"<p>no user O&#039;Brien</p>", "O&#x27;Brien", `O\'Brien`},
		"4111111111111111":       {"card 4111-1111-1111-1111 has expired", "4111 1111 1111 1111"},
		"+493012345678":          {"phone +49 (30) 123-456-78"},
		"DE89370400440532013000": {"DE89.3704.0044.0532.0130.00"},
	} {
		m := redact.NewMask([]string{value}, []string{value})
		for _, text := range texts {
			if got := m.Hide(text); !strings.Contains(got, mark) ||
				strings.ContainsAny(got, "0123456789") ||
				strings.Contains(got, "ller") || strings.Contains(got, "Brien") {
				t.Errorf("%s: got %q, want %q without the value", value, got, text)
			}
		}
	}
}

// cutter is a sender that hides a text before it cuts the text, as the senders of requests do.
type cutter struct{ text string }

func (c cutter) Send(_ context.Context, d weir.Delivery) weir.Result {
	return weir.Result{Reason: d.HideValues(c.text)[:40]}
}

func TestSender_HidesValuesBeforeTheyAreCut(t *testing.T) {
	t.Parallel()
	for length := range 40 {
		s := &redact.Sender{Next: cutter{strings.Repeat("x", length) + "471147114711" +
			strings.Repeat("x", 40)}, Contracts: newContracts(t)}
		got := s.Send(t.Context(), weir.Delivery{Message: &weir.Message{Contract: "person",
			ContentType: "application/xml",
			Body:        []byte("<person><pan>471147114711</pan></person>")}})
		if strings.Contains(got.Reason, "47") {
			t.Fatalf("got %q, want no part of the value", got.Reason)
		}
	}
}

type fixedSender struct{ result weir.Result }

func (s fixedSender) Send(context.Context, weir.Delivery) weir.Result { return s.result }

func TestSender_HidesValuesInTheResult(t *testing.T) {
	t.Parallel()
	echo := weir.Result{Outcome: weir.OutcomeRejected, Status: 422, Reason: "422: 4711",
		Body: "no 4711", RememberedID: "id", Steps: []weir.Step{{Name: "look up", Reason: "4711"}}}

	for name, tt := range map[string]struct{ contract, body, want string }{
		"values":             {"person", "<person><pan>4711</pan></person>", "422: " + mark},
		"other contract":     {"plain", "<plain><pan>4711</pan></plain>", "422: 4711"},
		"contract gone":      {"old", "<old><pan>4711</pan></old>", "hidden"},
		"body without value": {"person", "<person/>", "422: 4711"},
		"broken body":        {"person", "<person><pan>4711</pan>", "hidden"},
	} {
		s := &redact.Sender{Next: fixedSender{echo}, Contracts: newContracts(t)}
		got := s.Send(t.Context(), weir.Delivery{Message: &weir.Message{Contract: tt.contract,
			ContentType: "application/xml", Body: []byte(tt.body)}})
		if !strings.Contains(got.Reason, tt.want) || got.RememberedID != "id" || got.Status != 422 {
			t.Errorf("%s: got %+v, want the reason %q", name, got, tt.want)
		}

		all := got.Reason + got.Body + got.Steps[0].Reason
		if isKept := strings.Contains(tt.want, "4711"); strings.Contains(all, "4711") != isKept {
			t.Errorf("%s: got the texts %q, want the value in them: %v", name, all, isKept)
		}

		if echo.Steps[0].Reason != "4711" {
			t.Fatalf("%s: the sender's result has the reason %q, want 4711 unchanged", name,
				echo.Steps[0].Reason)
		}
	}
}

type fixedLoader map[string]weir.Message

func (l fixedLoader) LoadMessage(context.Context, weir.ID) (weir.Message, error) {
	return l["accepted"], nil
}

func (l fixedLoader) LoadEditedMessage(context.Context, weir.ID) (weir.Message, error) {
	m, found := l["edited"]
	if !found {
		return m, &weir.Error{Kind: weir.NotFound, Op: "load", Message: "not edited"}
	}
	return m, nil
}

func TestBodies(t *testing.T) {
	t.Parallel()
	person := func(contract, body string) weir.Message {
		return weir.Message{Contract: contract, ContentType: "text/xml", Body: []byte(body)}
	}
	b := &redact.Bodies{Contracts: newContracts(t), Loader: fixedLoader{
		"accepted": person("person", "<person><pan>4711</pan></person>"),
		"edited":   person("person", "<person><pan>4711")}}
	m, err := b.LoadMessage(t.Context(), weir.ID{})
	if want := "<person><pan>" + mark + "</pan></person>"; err != nil || string(m.Body) != want {
		t.Errorf("got %q, %v, want %q", m.Body, err, want)
	}

	if m, err = b.LoadEditedMessage(t.Context(), weir.ID{}); weir.KindOf(err) != weir.Conflict ||
		m.Body != nil {
		t.Errorf("broken body: got %q, %v, want an error of kind Conflict and no body", m.Body, err)
	}

	b.Loader = fixedLoader{"accepted": person("plain", "<plain>")}
	if m, err = b.LoadMessage(t.Context(), weir.ID{}); err != nil || string(m.Body) != "<plain>" {
		t.Errorf("contract without redaction: got %q, %v, want the body", m.Body, err)
	}

	if _, err = b.LoadEditedMessage(t.Context(), weir.ID{}); weir.KindOf(err) != weir.NotFound {
		t.Errorf("not edited: got %v, want an error of kind NotFound", err)
	}
}

func TestHideTemplate(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`<person run="{{.Run}}"><pan>47{{.Run}}</pan></person>`: `<person run="{{.Run}}"><pan>` +
			mark + `</pan></person>`,
		`<plain>{{.DueAt}}</plain>`:                           `<plain>{{.DueAt}}</plain>`,
		`<person>{{"<!--"}}<pan>4711</pan>{{"-->"}}</person>`: "",
		"<person>{{- `<!--`}}<pan>4711</pan></person>":        "",
		`<other><pan>4711</pan></other>`:                      "",
		`<person><pan>4711</person>`:                          "",
	} {
		got := redact.HideTemplate(t.Context(), newContracts(t), "application/xml", []byte(message))
		if string(got) != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}

	without, err := contract.New([]contract.Definition{{Name: "c", Root: "c"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	if got := redact.HideTemplate(t.Context(), without, "", []byte(`<{{"x"}}`)); string(got) !=
		`<{{"x"}}` {
		t.Errorf("without redaction: got %q, want the message", got)
	}
}
