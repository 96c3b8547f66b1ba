package steps_test

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/weir"
)

// TestSender_ExplainsAFailedExpression has answers without the fields that an expression reads. The
// reason of the result must suggest a correct expression.
func TestSender_ExplainsAFailedExpression(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ answer, expression, want string }{
		{`null`, "find.json.length", "cannot read length of nil; write len(list ?? [])"},
		{`[1]`, "find.json.length", "a name is read of a list or a text; write list[0].id"},
		{`{}`, "find.json.data.id", "cannot read id of nil; write object?.id"},
		{`{}`, "find.json.data[0]", "cannot read item 0 of nil; write list?.[0]"},
		{`{}`, "len(find.json.data)", "the argument of len is nil; write len(list ?? [])"},
	} {
		t.Run(c.expression+" of "+c.answer, func(t *testing.T) {
			t.Parallel()
			sender := newSender(t,
				mistakesAt+"      - { name: find, get: /a }\n      - { get: \"/{{ "+c.expression+
					" }}\" }\n", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					answerWith(http.StatusOK, "application/json", c.answer)(w)
				}))

			result := sender.Send(t.Context(), newDelivery(`<article id="1"/>`))
			if result.Outcome != weir.OutcomeUnavailable || !result.Refused ||
				!strings.Contains(result.Reason, c.want) {
				t.Errorf("got %s, %q; want unavailable, refused, and a reason with %q",
					result.Outcome, result.Reason, c.want)
			}
		})
	}
}
