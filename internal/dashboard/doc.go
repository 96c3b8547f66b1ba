// Package dashboard serves the operator's page: GET /api/dashboard and the addresses below it.
//
// # How it works
//
// The server makes complete pages, which can be read without JavaScript. One script updates the
// changed parts of an open page every five seconds. It sends the operator's changes to the API that
// other clients also use. The page needs no build step and no JavaScript library. The server draws
// charts as SVG. So charts need no script, and a screen reader can read them.
//
// # Keys
//
// The operator opens the page with the parameter ?code=, which is the key of functions/view. Every
// link on the page repeats this parameter. A change needs the key of functions/write or, for a
// schedule, of functions/schedules. At the first change that needs a key, the page asks the
// operator for the key, and stores it in the browser tab.
//
// # Bounds
//
// The server loads the parts of a page concurrently, within ten seconds. If a part could not be
// loaded, the page shows a note. Requests that need the same data at the same time share one load.
// Most data is cached for 3 to 30 seconds.
//
// # Hostile content
//
// Keys, bodies and error texts come from upstreams and from the CMS. html/template escapes these
// texts, and no page has an inline script or style. The function Show replaces characters that are
// invisible or change the writing direction.
package dashboard
