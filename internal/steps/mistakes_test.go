package steps_test

import (
	"strings"
	"testing"
)

// mistakesAt is the beginning of a settings file. The steps of each case begin at line 6, column 7.
const mistakesAt = "contracts:\n  - name: article\n    root: article\n    key: ./@id\n    steps:\n"

// mistakeCases are the cases of TestNew_Mistakes. The error names one mistake in each line of its
// text. One of these lines must begin with "at", the position of the mistake in the settings, and
// must contain the text of "says".
var mistakeCases = map[string]struct{ steps, at, says string }{
	"NoRequest":   {"- name: find", "[6:9]", "the step has no request; write get, post"},
	"TwoRequests": {"- get: /a\n        post: /b", "[7:9]", "make two steps of get and post"},
	"UnknownSetting": {
		"- get: /a\n        hedaers: {}", "[7:9]",
		"hedaers is not a setting of a step; did you mean headers?",
	},
	"UnknownSettingFar": {"- get: /a\n        cookies: 1", "[7:9]",
		"a step has name, when, headers"},
	"ReadsByGet": {"- get: /a\n        reads: true", "[7:9]", "reads belongs to post"},
	"ReadsByGraphQL": {"- graphql: \"{ a }\"\n        reads: true", "[7:9]",
		"a query of GraphQL reads"},
	"ReadsAsText": {"- post: /a\n        reads: always", "[7:16]",
		"it must be true or false"},
	"SignInByFixedCredential": {
		"- get: /a\n        on: [ { when: status == 403, do: signIn } ]", "[7:42]",
		"signIn needs a delivery.signIn by oauth2, jwt, azure or steps",
	},
	"SayOutsideOfRule": {"- get: /a\n        say: no", "[7:9]", "say belongs to a rule under on"},
	"NotAStep":         {"- /items", "[6:9]", "a step must be a mapping, such as { name: find"},
	"BadName": {
		"- name: find-it\n        get: /a", "[6:15]", "write letters, digits and _, such as find",
	},
	"NameTwice": {
		"- { name: find, get: /a }\n      - { name: find, get: /b }", "[7:17]",
		"is the name of an earlier step",
	},
	"NameReserved": {"- { name: status, get: /a }", "[6:17]",
		"take another name, such as status_item"},
	"NameOfAFunction": {"- { name: text, get: /a }", "[6:17]", "has a meaning in expressions"},
	"NoSlash":         {"- get: items", "[6:14]", "must begin with / or ?; write /items"},
	"OtherHost":       {"- get: https://other.example/items", "[6:14]", "write the host there"},
	"HostFromMessage": {
		"- get: \"https://{{ key }}.example/\"", "[6:14]",
		"the host of an address cannot come from an expression",
	},
	"OldPlaceholder": {"- get: \"/items/{key}\"", "[6:14]", "write {{ key }}"},
	"Fragment":       {"- get: \"/items#{{ key }}\"", "[6:14]", "write %23"},
	"SpaceInAddress": {"- get: \"/items?a=b c\"", "[6:14]", "write %20"},
	"ListInAddress": {
		"- get: \"/items/{{ texts('./tag') }}\"", "[6:14]",
		"is a list and cannot stand in a text; take one part",
	},
	"AnswerAsValue": {
		"- { name: find, get: /a }\n      - post: /b\n        json: { a: \"{{ find }}\" }",
		"[8:20]",
		"is a step's answer and cannot be a value; take one part of it",
	},
	"FunctionAsValue": {
		"- post: /b\n        json: { a: \"{{ text }}\" }", "[7:20]",
		"is a function and cannot be a value",
	},
	"AnswerAsJSON": {
		"- { name: find, get: /a }\n      - post: /b\n        json: { a: \"{{ toJSON(find) }}\" }",
		"[8:31]",
		"write toJSON(find.json)",
	},
	"NotClosed": {"- get: \"/items/{{ key\"", "[6:22]", "{{ is not closed; write {{ expression }}"},
	"NotOpened": {"- get: \"/items/key }}\"", "[6:26]", "}} without {{ before it"},
	"EmptyExpression": {
		"- get: \"/items/{{ }}\"", "[6:25]",
		"the expression is empty; write one such as text('./title')",
	},
	"UnknownName": {"- get: \"/items/{{ kye }}\"", "[6:25]",
		"kye is not known here; did you mean key?"},
	"UnknownFunction": {
		"- get: \"/items/{{ tex('./a') }}\"", "[6:25]", "tex is not known here; did you mean text?",
	},
	"SecondExpression": {"- get: \"/{{ key }}/{{ nope }}\"", "[6:29]",
		"nope is not known here; known are"},
	"Null": {"- { get: /a, when: key == null }", "[6:33]",
		"null is not known here; write nil"},
	"LaterStep": {
		"- { get: /a, when: publish.status == 200 }\n      - { name: publish, post: /p }", "[6:26]",
		"publish is a later step",
	},
	"OwnAnswerTooEarly": {
		"- { get: /a, when: status == 200 }", "[6:26]",
		"this step has no answer yet; read an earlier step's, such as find.status",
	},
	"NoSuchPart": {
		"- { name: find, get: /a }\n      - { get: \"/{{ find.data.id }}\" }", "[7:26]",
		"it has status, json, headers, body and xml",
	},
	"NotBool": {
		"- { get: /a, when: len(key) }", "[6:26]",
		"is a number and must be true or false; compare it",
	},
	"BracesInCondition": {"- { get: /a, when: \"{{ key != '' }}\" }", "[6:26]",
		"write it without {{ and }}"},
	"Syntax":        {"- { get: /a, when: key == }", "[6:", "the expression cannot be read"},
	"TypesDiffer":   {"- { get: /a, when: key == 1 }", "[6:30]", "mismatched types"},
	"OneEqualsSign": {"- { get: /a, when: key = 'a' }", "[6:", "write == to compare"},
	"IfThenElse": {"- get: \"/{{ if key == '' then 'a' else 'b' }}\"", "[6:",
		"condition ? value : other"},
	"OrForText": {"- get: \"/{{ text('./a') || 'none' }}\"", "[6:",
		"write ?? for a text in place of nil"},
	"Method": {"- get: \"/{{ key.toLowerCase() }}\"", "[6:",
		"a text has no toLowerCase; write a function"},
	"PipeNoBrackets": {"- get: \"/{{ key | upper }}\"", "[6:", "such as key | upper()"},
	"StepAsFunction": {
		"- { name: find, get: /a }\n      - { get: /b, when: \"find(find.json, true) == nil\" }",
		"[7:",
		"the step find cannot be read in it; name the step find_item",
	},
	"OwnStepAsFunction": {
		"- { name: find, get: /a, success: \"find(find.json, true) != nil\" }", "[6:",
		"name the step find_item",
	},
	"ObjectInMap": {
		"- { post: /a, json: { a: \"{{ map(texts('./b'), {'c': #}) }}\" } }", "[6:",
		"an object in map needs brackets",
	},
	"PathNotWritten": {
		"- get: \"/{{ text(key) }}\"", "[6:",
		"must be written out in quotes, such as text('./title')",
	},
	"BadPath": {"- get: \"/{{ text('./a[') }}\"", "[6:", "brackets or quotes do not match"},
	"MarkupOfAttribute": {
		"- post: /a\n        json: { a: \"{{ inner('./@a') }}\" }", "[7:",
		"an attribute has no markup; read it by text",
	},
	"BadXMLPath": {"- { get: /a, success: \"xml('//a[') != nil\" }", "[6:", "brackets or quotes"},
	"BytesInJSON": {
		"- { post: /a, json: { a: \"{{ bytes(text('./a')) }}\" } }", "[6:32]",
		"bytes belong to body",
	},
	"BytesInText": {
		"- { post: /a, form: { a: \"x{{ bytes(text('./a')) }}\" } }", "[6:32]",
		"bytes belong to body",
	},
	"BodyText": {
		"- { post: /a, body: hello }", "[6:27]",
		"it must be message (the message's own bytes), or a value",
	},
	"PartNoName": {"- { post: /a, multipart: [ { content: a } ] }", "[6:34]",
		"a part needs name and content"},
	"PartUnknown": {
		"- { post: /a, multipart: [ { name: a, content: a, file: b } ] }", "[6:57]",
		"it has name, filename",
	},
	"PartType": {
		"- { post: /a, multipart: [ { name: a, content: a, type: png } ] }", "[6:63]",
		"is not a content type",
	},
	"MultipartMapping": {"- { post: /a, multipart: { a: b } }", "[6:32]",
		"multipart must be a list of parts"},
	"NothingRemembered": {"- { get: /a, when: remembered == nil }", "[6:26]",
		"no step remembers an id; write remember"},
	"NothingForgotten": {
		"- { get: /a, on: [ { when: status == 404, do: forget } ] }", "[6:53]",
		"there is nothing to forget",
	},
	"RememberedText": {"- { post: /a, remember: id }", "[6:31]",
		"it must have an expression with the id"},
	"RememberedList": {"- { post: /a, remember: \"{{ texts('./a') }}\" }", "[6:31]",
		"cannot stand in a text"},
	"Now":                {"- get: \"/{{ now() }}\"", "[6:", "use acceptedAt"},
	"SecretInExpression": {"- get: \"/{{ '${KEY}' }}\"", "[6:", "write it outside of {{ }}"},
	"TwoBodies": {
		"- post: /a\n        json: {}\n        form: {}", "[8:9]",
		"a step has one body; write json or form",
	},
	"BodyOfGet": {
		"- get: /a\n        json: {}", "[7:9]", "write the values into the address, or write post",
	},
	"NameOfField": {"- post: /a\n        json: { \"{{ key }}\": 1 }", "[7:17]",
		"only values can"},
	"BodyNotMessage": {"- post: /a\n        body: text", "[7:15]", "it must be message"},
	"FormWithTree": {"- post: /a\n        form: { a: { b: 1 } }", "[7:9]",
		"for a tree write json"},
	"XMLNotWellFormed": {"- post: /a\n        xml: \"<a><b></a>\"", "[7:14]",
		"xml is not well-formed"},
	"XMLName": {
		"- post: /a\n        xml: \"<{{ key }}/>\"", "[7:14]",
		"may stand in a text or in an attribute's value only",
	},
	"XMLDoctype": {
		"- post: /a\n        xml: \"<!DOCTYPE a SYSTEM '{{ key }}'><a/>\"", "[7:14]",
		"may stand in a text or in an attribute's value only",
	},
	"QueryWithExpression": {
		"- graphql: 'query { item(id: \"{{ key }}\") { id } }'", "[6:37]",
		"name a variable such as $path",
	},
	"UnknownVariable": {
		"- graphql: 'query($a: ID) { item(id: $a) { id } }'\n        variables: { b: 1 }", "[7:20]",
		"the query has no variable $b",
	},
	"VariablesOfPost": {"- post: /a\n        variables: { b: 1 }", "[7:9]",
		"variables belong to graphql"},
	"HeaderName": {
		"- get: /a\n        headers: { \"If Match\": x }", "[7:20]", "is not the name of a header",
	},
	"HeaderOfWeir": {
		"- get: /a\n        headers: { Idempotency-Key: x }", "[7:20]",
		"is set by Weir; leave it out",
	},
	"ExpectText": {
		"- get: /a\n        expect: [200, found]", "[7:23]",
		"is not a status from 200 to 599; write a list such as [200, 404]",
	},
	"Expect401": {"- get: /a\n        expect: 401", "[7:17]", "Weir signs in anew"},
	"OnNotAList": {
		"- get: /a\n        on: { when: status == 404, do: done }", "[7:13]",
		"on must be a list of rules",
	},
	"RuleWithoutDo": {
		"- get: /a\n        on: [ { when: status == 404 } ]", "[7:15]",
		"the rule has no do; write ok, done, again",
	},
	"RuleWithoutWhen": {"- get: /a\n        on: [ { do: again } ]", "[7:15]",
		"the rule has no when"},
	"RuleUnknownDo": {
		"- get: /a\n        on: [ { when: status == 404, do: agian } ]", "[7:42]",
		"write ok, done, again, forget, signIn, retry, refuse, unavailable or reject; did you mean again?",
	},
	"RuleUnknownSetting": {
		"- get: /a\n        on: [ { if: status == 404, do: done } ]", "[7:17]",
		"it has when, do and say",
	},
	"EveryWithoutUntil": {"- get: /a\n        every: 1s", "[7:9]", "every belongs to until"},
	"ForTooLong": {
		"- get: /a\n        until: json.done\n        for: 1h", "[8:14]",
		"longer than delivery.timeout (10s)",
	},
	"BadDuration": {
		"- get: /a\n        until: json.done\n        every: soon", "[8:16]",
		"is not a duration such as 2s",
	},
	"RetryAfterName": {"- get: /a\n        retryAfter: 5 s", "[7:21]",
		"it must be the name of a header"},
	"UntilNotBool": {"- get: /a\n        until: \"'x'\"", "[7:16]",
		"is a text and must be true or false"},
	"NoList": {"{ get: /a }", "[6:", "it must be a list of steps"},
	"BlockExpression": {"- post: /a\n        xml: |\n          <a>\n            <b>{{ tittle }}</b>\n          </a>",
		"[9:19]",
		"tittle is not known here"},
}

func TestNew_Mistakes(t *testing.T) {
	t.Parallel()
	for name, c := range mistakeCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compileSteps(t, mistakesAt+"      "+c.steps+"\n", "http://cms.example")
			if err == nil {
				t.Fatal("New returned no error, want one")
			}

			for line := range strings.SplitSeq(err.Error(), "\n") {
				if strings.HasPrefix(line, c.at) && strings.Contains(line, c.says) &&
					strings.Contains(line, "contracts[0].steps") {
					return
				}
			}

			t.Errorf("got the error %v, want one at %s with %q", err, c.at, c.says)
		})
	}
}

func TestNew_CorrectSettings(t *testing.T) {
	t.Parallel()
	const text = `
delivery:
  on:
    - { when: "status == 503 and headers['X-Maintenance'] != nil", do: unavailable, say: "away: {{ body }}" }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - { name: find, get: "/items/{{ key }}?a={{ slug(text('./title')) }}", expect: [200, 404], retryAfter: X-Reset }
      - { when: find.status == 404, head: /x }
      - name: send
        when: find == nil or find.json?.data?.id == nil and has('./a')
        post: /items
        headers: { If-Match: "{{ find.headers['ETag'] }}", X-Fixed: "${KEY}" }
        json: &item { a: 1, b: true, c: null, d: [ "{{ number('./n') }}", 2.5 ], e: "{{ {'x': {'y': key}} }}" }
        success: json.id != nil
      - { put: /items, json: { <<: *item, a: 2 } }
      - { patch: /items, form: { a: [ x, "{{ key }}" ], b: "{{ texts('./t') }}" } }
      - { delete: "?id={{ uuid5('6ba7b811-9dad-11d1-80b4-00c04fd430c8', key) }}" }
      - { post: /raw, body: message }
      - post: /xmlrpc
        xml: |
          <a b="{{ key }}">{{ inner('./body') ?? '' }}{{ 1 < 2 && true }}</a>
      - graphql: "query($id: ID!) { item(id: $id) { id } }"
        variables: { id: "{{ send?.json.id ?? find.json.id }}" }
        until: json.data.item != nil
        every: 1s
        for: 5s
`
	if _, err := compileSteps(t, text, "http://cms.example"); err != nil {
		t.Error(err)
	}
}
