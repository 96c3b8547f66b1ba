package contract_test

import (
	"errors"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

func TestSet_Supersede(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "item", Root: "item", Key: "./@id", Version: "./@v",
		Supersede: true}}, contract.Limits{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"7", "1.10", "2026-01-31T08:00:00+01:00"} {
		m, err := s.Accept(t.Context(), "", []byte(`<item id="1" v="`+v+`"/>`))
		if err != nil || !m.Supersede || m.Version != v {
			t.Errorf("%s: %+v, %v", v, m, err)
		}
	}
	for v, says := range map[string]string{"v7": "neither a number", "": "missing"} {
		_, err := s.Accept(t.Context(), "", []byte(`<item id="1" v="`+v+`"/>`))
		var refused *weir.Error
		if !errors.As(err, &refused) || refused.Kind != weir.Invalid || len(refused.Problems) != 1 ||
			!strings.Contains(refused.Problems[0].Message, says) {
			t.Errorf("%q: %+v", v, err)
		}
	}
}

func TestNew_SupersedeNeedsKeyAndVersion(t *testing.T) {
	t.Parallel()
	for _, def := range []contract.Definition{{Name: "a", Root: "a", Key: "./@id", Supersede: true},
		{Name: "a", Root: "a", Version: "./@v", Supersede: true}} {
		if _, err := contract.New([]contract.Definition{def}, contract.Limits{MaxBody: 1}); err == nil ||
			!strings.Contains(err.Error(), "supersede needs") {
			t.Errorf("%+v: %v", def, err)
		}
	}
}
