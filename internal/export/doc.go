// Package export writes a list of the API as a file: as CSV, or as JSON. It reads the list page by page, so that a long
// list does not fill the memory. An incomplete file can be told from a complete one: it has a note or a token at its
// end, or its connection was cut off.
package export
