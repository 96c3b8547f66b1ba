// Package export writes a list of the API as a CSV or JSON file. It reads the list page by page, so
// that a long list does not fill the memory. A client can see that a file is incomplete: a CSV file
// ends with a note, a JSON file ends with the token of the next page, or the connection is cut off.
package export
