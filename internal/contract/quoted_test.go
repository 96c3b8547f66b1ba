package contract_test

import (
	"errors"
	"strings"
	"testing"

	"weir/internal/weir"
)

// malformedDocuments has a document for each kind of problem, and the fixed part of its reason.
// Each word that comes from the document has zq in it.
var malformedDocuments = map[string]string{
	`<!DOCTYPE zqname [<!ENTITY zqa 'zqb'>]><zqname/>`: "the document type declaration has an internal subset",
	`<!DOCTYPE zqname zqa><zqname/>`:                   "the document type declaration is not well-formed",
	`<!DOCTYPE zqname><zqname>&zqa;</zqname>`:          "the entity … needs the DTD, which Weir does not load",
	`<zqname>zqtext`:                      "element <…> is not closed",
	`zqtext<zqname/>`:                     "there is text before the root element: …",
	`<zqname/>zqtext`:                     "there is text after the root element",
	`<zqname></zqother>`:                  "element <…> is closed by </…>",
	`</zqname>`:                           "</…> closes nothing",
	`<zqname>zqtext & zqmore</zqname>`:    "an & begins no entity; write & as &amp;",
	`<zqname>&zqentity;</zqname>`:         "there is no entity …; XML knows only",
	`<zqname zqattr='zqa' zqattr='zqb'/>`: "the attribute … appears twice",
	`<zqp:name/>`:                         "the namespace prefix … is not declared",
	`<zqname xmlns:zqp=''/>`:              "the namespace prefix … is bound to nothing",
	`<zqname xmlns:zqp='http://www.w3.org/2000/xmlns/'/>`: "the namespace prefix … must not be bound",
	`<zqname zqattr=zqvalue/>`:                            "unquoted or missing attribute value in element",
	`<zqname zqattr/>`:                                    "attribute name without = in element",
	`<zqname zqa='zqb'zqc='zqd'/>`:                        "there is no space between two attributes",
	`<zqname><?xml version='1.0'?></zqname>`:              "the XML declaration must stand at the very beginning",
	`<zqname>zqtext ]]> zqmore</zqname>`:                  "unescaped ]]> not in CDATA section",
	`<zqname zqa='zqb<zqc'/>`:                             "unescaped < inside quoted string",
	`<zqname></zqname zqmore>`:                            "not well-formed: …",
	"<zqname>zqtext\x00</zqname>":                         "the character U+0000 is not allowed in XML",
	`<zqname><!-- zqa -- zqb --></zqname>`:                `invalid sequence "--" not allowed in comments`,
	`<zqname>&#xD800;</zqname>`:                           "the reference … names no character",
	`<zqname/><zqother/>`:                                 "there is more than one root element",
	strings.Repeat("<zqname>", 300) +
		"zqtext": "elements are nested more than 256 deep",
	`<?xml version='1.0'?>` + "\n" +
		`<zqname><?zqx:y zqz?></zqname>`: "the target of a processing instruction has a colon",
}

// If a contract redacts values, a reason must not repeat words of the document, because such a word
// can belong to a redacted value. The fixed part of the reason must stay: without it, an operator
// cannot find the error.
func TestAccept_HidesOnlyTheWordsOfTheDocument(t *testing.T) {
	t.Parallel()
	redacting, open := newPersonSet(t, "./pan"), newPersonSet(t)
	for body, want := range malformedDocuments {
		_, err := redacting.Accept(t.Context(), "application/xml", []byte(body))
		checkReason(t, body, err, want)
		if strings.Contains(err.Error(), "zq") {
			t.Errorf("%q: got %v, want no word of the document", body, err)
		}

		_, plain := open.Accept(t.Context(), "application/xml", []byte(body))
		first, _, _ := strings.Cut(want, "…")
		checkReason(t, body, plain, first)
		if strings.ContainsAny(plain.Error(), "\x02\x03") {
			t.Errorf("%q: got %q, want no mark of a quotation", body, plain)
		}
	}
}

func checkReason(t *testing.T, body string, err error, want string) {
	t.Helper()
	var refused *weir.Error
	if !errors.As(err, &refused) || refused.Kind != weir.Malformed ||
		!strings.Contains(refused.Message, want) {
		t.Errorf("%q: got %v, want a refusal with %q", body, err, want)
	}
}
