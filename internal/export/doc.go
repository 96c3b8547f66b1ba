// Package export writes a list of the API as a file: as CSV, or as JSON. A list is read page by page, so that a long
// one does not fill the memory, and a file that is not whole shows that.
package export
