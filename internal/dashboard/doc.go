// Package dashboard is the operator's page: GET /api/dashboard and what is below it.
//
// # How it works
//
// Pages are made on the server and work without a script, to be read. One script of our own
// adds the rest: it replaces what changed every five seconds, and sends what the operator
// does to the same addresses everybody else uses. There is no build step and no library:
// plots are drawn as SVG on the server, for that needs no script, can be read by a screen
// reader, and is as strict a page's content security policy as there can be.
//
// # Keys
//
// The page is opened with ?code=, the key of the function view, as Azure has it; every
// address on the page carries it on. The key of the function write is asked for when it is
// needed, and stays in the tab.
//
// # Bounds
//
// A page reads what it shows at the same time, within ten seconds. What could not be read is
// said, and the rest is shown. What every page needs is read once for all who look.
//
// # Hostile content
//
// Keys, bodies and error texts were written by others. html/template escapes them, no script
// or style stands in a page, and characters that cannot be seen, or that turn the direction
// of writing, are shown by their numbers.
package dashboard
