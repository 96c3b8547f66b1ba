package steps_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/internal/cms"
)

// missingMembers rehearses an attempt whose steps get these JSON bodies as answers. It returns the
// sentences about members that the answers lack.
func missingMembers(t *testing.T, list string, answers ...string) (sentences []string) {
	t.Helper()
	sender, err := compileSteps(t, articleWithSteps(list), "http://cms.example/api")
	if err != nil {
		t.Fatal(err)
	}

	sender.Rehearse(t.Context(), newDelivery("<article><title>T</title></article>"), &cms.Rehearsal{
		Answer: func(string, *http.Request) (*http.Response, error) {
			if len(answers) == 0 {
				return nil, cms.ErrNoAnswer
			}

			body := answers[0]
			answers = answers[1:]
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(body))}, nil
		},
		LeaveOut: func(string, string) {}, Judge: func(_, _, _ string) {},
		Outline:      func(cms.StepOutline) {},
		MissesMember: func(sentence string) { sentences = append(sentences, sentence) },
	})

	return sentences
}

// A wrong path into an answer is the second most likely mistake in a recipe. A path whose member
// may be absent is none.
func TestRehearse_NamesMissingMembers(t *testing.T) {
	t.Parallel()
	const answer = `{"data":[{"slug":"a"}],"meta":{},"deleted":null}`
	for expression, want := range map[string]string{
		`find.json.id`:                             "find.json has no member id; it has data, deleted, meta",
		`find.json['id']`:                          "find.json has no member id; it has data, deleted, meta",
		`find.json.data[0].id`:                     "find.json.data[0] has no member id; it has slug",
		`find.json.meta.page.next`:                 "find.json.meta has no member page; it has none",
		`upper(find.json.title)`:                   "find.json has no member title; it has data, deleted, meta",
		`find.json.data[0].slug`:                   "",
		`find.json.deleted`:                        "",
		`find.json?.id`:                            "",
		`find.json.item?.id`:                       "",
		`find.json.id ?? key`:                      "",
		`find.json.id != nil ? 'yes' : 'no'`:       "",
		`find.json.data ? key : find.json.id`:      "",
		`len(find.json.data) == 9 and find.json.x`: "",
		`find.json.data[7]?.id`:                    "",
		`find.headers.location`:                    "",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			got := missingMembers(t, `
      - { name: find, get: /items }
      - { name: update, put: /items, json: { id: "{{ `+expression+` }}" } }`, answer, `{}`)
			if strings.Join(got, "; ") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestRehearse_NamesMissingMembersOfTheOwnAnswer(t *testing.T) {
	t.Parallel()
	got := missingMembers(t, `
      - { name: create, post: /items, json: { key: "{{ key }}" }, remember: "{{ json.id }}",
          on: [{ when: json.code == 'busy', do: retry }] }`, `{"data":{"id":7}}`)
	if want := []string{"json has no member id; it has data"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
