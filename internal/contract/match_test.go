package contract_test

import (
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// envelopes are contracts of one root: two by their content, one by a header, one in a namespace,
// and one for the rest.
var envelopes = []contract.Definition{
	{Name: "order", Root: "Envelope", Match: "has('./Body/order')",
		Key: contract.KeyPaths{"./Body/order/@id"}},
	{Name: "refund", Root: "Envelope",
		Match: "header('SOAPAction') matches 'refund$' && text('./Body/@v') != '1'",
		Key:   contract.KeyPaths{"./Body/@id"}},
	{Name: "pay", Root: "{urn:s}Envelope",
		Match: "lower(text('./Body/kind') ?? '') in ['pay', 'payment']",
		Key:   contract.KeyPaths{"./Body/id"}},
	{Name: "rest", Root: "Envelope", Key: contract.KeyPaths{"./Body/@id"},
		Redact: []string{"./Body/secret"}},
}

func TestAccept_ChoosesByMatch(t *testing.T) {
	t.Parallel()
	set, err := contract.New(envelopes, contract.Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ action, body, contract, key string }{
		{"", "<Envelope><Body id='1'><order id='7'/></Body></Envelope>", "order", "7"},
		{"urn:refund", "<Envelope><Body id='1'><order id='7'/></Body></Envelope>", "order", "7"},
		{"urn:refund", "<Envelope><Body id='1'/></Envelope>", "refund", "1"},
		{"urn:refund", "<Envelope><Body id='1' v='1'/></Envelope>", "rest", "1"},
		{"", "<Envelope><Body id='1'/></Envelope>", "rest", "1"},
		{"", "<e:Envelope xmlns:e='urn:s'><Body><id>3</id><kind>P<b>ay</b></kind></Body></e:Envelope>", "pay", "3"},
		{"", "<Envelope xmlns='urn:s'><Body id='4'><id>3</id><kind>x</kind></Body></Envelope>",
			"rest", "4"},
	} {
		ctx := weir.WithHeaders(t.Context(), map[string][]string{"Soapaction": {c.action}})
		m, err := set.Accept(ctx, xml, []byte(c.body))
		if err != nil || m.Contract != c.contract || m.Key != c.key {
			t.Errorf("%q %s: got %s %s, %v; want %s %s", c.action, c.body, m.Contract, m.Key, err,
				c.contract, c.key)
		}
	}

	// A body of an unknown contract is redacted by the contract that takes it.
	got, err := set.Redact(t.Context(), "", xml,
		[]byte("<Envelope><Body id='1'><secret>s</secret></Body></Envelope>"))
	if err != nil || !strings.Contains(string(got.Body), contract.RedactedMark) {
		t.Errorf("got %s, %v; want the mark", got.Body, err)
	}
}

func TestAccept_NamesEachConditionThatIsMissed(t *testing.T) {
	t.Parallel()
	set, err := contract.New(envelopes[:3], contract.Limits{MaxBody: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}

	_, err = set.Accept(t.Context(), xml, []byte("\n<Envelope><Body v='1'/></Envelope>"))
	var got []string
	for _, p := range err.(*weir.Error).Problems {
		got = append(got, p.Message)
		if p.Rule != "match" || p.Line != 2 {
			t.Errorf("got %+v, want rule match in line 2", p)
		}
	}

	text := strings.Join(got, "\n")
	if weir.KindOf(err) != weir.Invalid || len(got) != 2 ||
		!strings.Contains(text, "contract order does not take the message, because its match does not hold: has('./Body/order')") ||
		!strings.Contains(text, "contract refund does not take the message") {
		t.Errorf("got %v\n%s\nwant both contracts and their conditions", err, text)
	}
}

func TestNew_RefusesMatches(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"has('./a'": "match: ", "texts('./a')": "match: ", "1": "match: ",
		"hasnt('./a')": "match: ", "json.a == 1": "match: ",
		"has('./a[')":                                        "brackets or quotes do not match",
		"has(text('./a'))":                                   "must be written out in quotes",
		"any(texts('./a'), # == 'b')":                        "has no loops",
		"header('a') matches text('./b')":                    "the pattern of matches must be written out",
		"let f = has; f('./a')":                              "no variables",
		"$env.has('./a')":                                    "by their names only",
		"len(repeat('a', 100000000)) > 1":                    "match: ",
		"has('/Order/a')":                                    "starts at the document, whose only element is r",
		"has('./a')" + strings.Repeat(" ", 5000) + "&& true": "more than 4096 bytes",
	} {
		_, err := contract.New([]contract.Definition{{Name: "r", Root: "r", Match: source}},
			contract.Limits{MaxBody: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", source, err, want)
		}
	}

	_, err := contract.New([]contract.Definition{{Name: "a", Root: "r"},
		{Name: "b", Root: "r", Match: "has('./b')"}}, contract.Limits{MaxBody: 1})
	if err == nil || !strings.Contains(err.Error(), `root "r" is taken by an earlier contract`) {
		t.Errorf("got %v, want the earlier contract without match", err)
	}
}
