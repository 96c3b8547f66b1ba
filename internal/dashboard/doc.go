// Package dashboard serves the operator's page: GET /api/dashboard and the addresses below it.
//
// # How it works
//
// The server makes the pages, and they can be read without a script. One script updates the changed parts of a
// page every five seconds, and sends the operator's changes to the same API that other clients use. There is no
// build step and no library. The server draws plots as SVG: so they need no script, a screen reader can read
// them, and the content security policy stays strict.
//
// # Keys
//
// The operator opens the page with ?code=, the key of the function view. Every link on the page repeats this
// parameter. At the first change, the page asks the operator for the key of the function write, and stores it
// in the browser tab.
//
// # Bounds
//
// A page loads its parts concurrently, within ten seconds. For each part that it could not load, it shows a note. If
// several requests need the same data at the same time, they share one load. Most data is cached for seconds.
//
// # Hostile content
//
// Keys, bodies and error texts come from others. html/template escapes them, and pages have no inline script or
// style. Characters that are invisible, or change the direction of writing, are shown as their numbers.
package dashboard
