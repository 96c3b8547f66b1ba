package cms_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/cms"
)

// The answers are those of the CMSs and frameworks that the names say.
func TestAnswer_Words(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, body, want string }{
		"Ghost": {"application/json", `{"errors":[{"message":"Validation error, cannot save ` +
			`post.","context":"Validation failed ` +
			`for 0.","type":"ValidationError","details":[{"instancePath":"/posts/0/tags/0","keyword":"type",` +
			`"message":"must be ` +
			`object"},{"instancePath":"/posts/0/tags/0","keyword":"maxLength","params":{"limit":191},` +
			`"message":"must NOT have ` +
			`more than 191 characters"}],"property":"0","help":null,"code":null}]}`,
			"Validation error, cannot save post. Validation failed for 0. must be object (/posts/0/tags/0); " +
				"must NOT have more than 191 characters (/posts/0/tags/0)"},
		"GhostWithoutDatabase": {"application/json",
			`{"errors":[{"message":"An unexpected error occurred, ` + `please try again.",` +
				`"context":"connect ECONNREFUSED 127.0.0.1:3306","type":"InternalServerError","details":null}]}`,
			"An unexpected error occurred, please try again. connect ECONNREFUSED 127.0.0.1:3306"},
		"Strapi": {"application/json",
			`{"data":null,"error":{"status":400,"name":"ValidationError",` +
				`"message":"2 errors occurred",` +
				`"details":{"errors":[{"path":["slug"],"message":"This attribute must be ` +
				`unique","name":"ValidationError"},` +
				`{"path":["title"],"message":"title must be at most 9 characters","name":"ValidationError"}]}}}`,
			"2 errors occurred: This attribute must be unique (slug); title must be at most 9 characters"},
		"StrapiOne": {"application/json",
			`{"data":null,"error":{"status":400,"name":"ValidationError",` +
				`"message":"This attribute ` +
				`must be unique","details":{"errors":[{"path":["slug"],"message":"This attribute must be unique"}]}}}`,
			"This attribute must be unique (slug)"},
		"JSONAPI": {"application/vnd.api+json",
			`{"errors":[{"title":"Unprocessable","status":"422",` + `"detail":"title: This value ` +
				`is too long.","source":{"pointer":"/data/attributes/title"}},{"detail":"may not be ` +
				`null","source":{"parameter":"x"}}]}`,
			"title: This value is too long. (/data/attributes/title); may not be null (x)"},
		"RFC9457": {"application/problem+json",
			`{"type":"about:blank","title":"Your request is not ` + `valid.","status":422,` +
				`"errors":[{"detail":"must be a positive integer","pointer":"#/age"}]}`,
			"Your request is not valid. must be a positive integer (#/age)"},
		"InvalidParams": {"application/problem+json",
			`{"title":"Invalid","invalid-params":[{"name":"age",` + `"reason":"must be ` +
				`positive"}]}`, "Invalid: must be positive (age)"},
		"ASPNET": {"application/problem+json",
			`{"title":"One or more validation errors occurred.","status":400,` +
				`"errors":{"Title":["The Title field is required.","Too short."]}}`,
			"One or more validation errors occurred. Title: The Title field is required., Too short."},
		"Payload": {"application/json", `{"errors":[{"name":"ValidationError",` +
			`"data":{"errors":[{"message":"Value must be unique",` +
			`"path":"slug"}]},"message":"The following field is invalid: slug"}]}`,
			"The following field is invalid: slug: Value must be unique (slug)"},
		"Keystone": {"application/json", `{"errors":[{"message":"Prisma ` +
			`error","path":["article"],"extensions":{"code":` +
			`"KS_PRISMA_ERROR"}}],"data":{"article":null}}`, "Prisma error (article)"},
		"WordPress": {"application/json",
			`{"code":"rest_invalid_param","message":"Invalid parameter(s): ` + `status","data":{` +
				`"status":400,"params":{"status":"status is not one of publish and draft."}}}`,
			"Invalid parameter(s): status: status: status is not one of publish and draft."},
		"Contentful": {"application/json", `{"sys":{"type":"Error","id":"ValidationFailed"},` +
			`"message":"Validation error",` +
			`"details":{"errors":[{"name":"required","path":["fields","title"],"details":"The property ` +
			`\"title\" is required"}]}}`,
			`Validation error: The property "title" is required (fields.title)`},
		"MediaWiki": {"application/json",
			`{"error":{"code":"readonly","info":"The wiki is in read-only mode"}}`,
			"The wiki is in read-only mode"},
		"Captcha": {"application/json",
			`{"edit":{"captcha":{"type":"simple","question":"3+4","id":"17"},` +
				`"result":"Failure"}}`,
			"edit.result: Failure, edit.captcha.id: 17, edit.captcha.question: 3+4, edit.captcha.type: simple"},
		"OData": {"application/json",
			`{"error":{"code":"","message":{"lang":"en","value":"The name is taken"}}}`,
			"The name is taken"},
		"NestJS": {"application/json",
			`{"statusCode":400,"message":["title must be shorter","slug must be ` +
				`lower case"],` +
				`"error":"Bad Request"}`, "title must be shorter; slug must be lower case"},
		"Django": {"application/json", `{"title":["This field is required."]}`,
			"title.0: This field is required."},
		"Lighthouse": {"application/json", `{"errors":[{"message":"Validation failed for the ` +
			`field","extensions":{"validation":` +
			`{"input.title":["The title is required."]}}}]}`,
			"Validation failed for the field: input.title: The title is required."},
		"CodeAlone":   {"application/json", `{"error":"invalid_grant"}`, "invalid_grant"},
		"Unreadable":  {"application/json", `{"error":`, `{"error":`},
		"Text":        {"text/plain", "no title", "no title"},
		"EmptyObject": {"application/json", "{}", "{}"},
		"Nginx": {"text/html",
			"<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n" +
				"<center><h1>413 Request Entity Too " +
				"Large</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>",
			"413 Request Entity Too Large: nginx"},
		"Styles": {"text/html",
			"<!DOCTYPE html><html><head><style>body { color: red }</style><title>We&#39;ll " +
				"be  back</title></head><!-- <p>no --><body><script>if (a < b) {}</script><p>Cannot access\n the " +
				"database</p></body></html>",
			"We'll be back: Cannot access the database"},
		"CutInStyle": {"text/html", "<!DOCTYPE html><title>Away</title><style>body {", "Away"},
		"OnlyScript": {"text/html", "<html><script>location='/login'</script></html>", ""},
	} {
		a := cms.Answer{Status: 400, Header: http.Header{"Content-Type": {c.kind}},
			Body: []byte(c.body)}
		if got := a.Words(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The reason of a page names the line to add, also if the page is long.
func TestClassify_APageOfSuccess(t *testing.T) {
	t.Parallel()
	a := cms.Answer{Status: 200, Header: http.Header{"Content-Type": {"text/html"}},
		Body: []byte("<html><title>Saved</title><body>" +
			strings.Repeat("The article was saved. ", 50))}
	r := cms.Classify(a, cms.Rules{}, time.Now())
	if !strings.HasPrefix(r.Reason, "200, but the answer is a page of HTML: Saved: The article was saved.") ||
		!strings.HasSuffix(r.Reason, cms.PageOfSuccess) {
		t.Errorf("got the reason %q, want the page's text and %q", r.Reason, cms.PageOfSuccess)
	}

	changes, err := os.ReadFile("../../CHANGELOG.md")
	line := "success: '<text of the page>'"
	for _, text := range []string{string(changes), cms.PageOfSuccess} {
		if !strings.Contains(text, line) {
			t.Errorf("CHANGELOG.md and the reason must name the line %q (%v)", line, err)
		}
	}
}
