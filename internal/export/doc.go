// Package export writes a list of the API as a file: as CSV, or as JSON. It reads the list page by page, so that a long
// list does not fill the memory. An incomplete file shows that it is incomplete: it ends with a note or a token, or its
// connection is cut off.
package export
