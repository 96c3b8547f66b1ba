package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/weir"
)

// headersFlag has the headers with which a file would be posted. The condition of a contract can
// read them, and the Content-Type can name the encoding.
type headersFlag struct{ given []string }

const headersHelp = `
--header 'Name: value' gives the FILE a header of its post, such as one that the match of a contract
reads, or a Content-Type with a charset. It may be repeated.`

func (h *headersFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&h.given, "header", nil,
		"a header of the post of FILE, as 'Name: value'; may be repeated")
}

// postOf returns a context with the headers, and the Content-Type of the files.
func (h *headersFlag) postOf(ctx context.Context) (posted context.Context, contentType string,
	err error) {
	headers := http.Header{"Content-Type": nil}
	for _, given := range h.given {
		name, value, isHeader := strings.Cut(given, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !isHeader || name == "" || strings.ContainsAny(name, " \t\r\n") ||
			strings.ContainsAny(value, "\r\n"):
			return ctx, "", fmt.Errorf("--header %q is not of the form 'Name: value'", given)
		case strings.EqualFold(name, "Content-Encoding"):
			return ctx, "", errors.New("--header has no Content-Encoding: unpack FILE")
		}

		headers.Add(name, value)
	}

	contentType = headers.Get("Content-Type")
	if contentType == "" {
		contentType = "application/xml"
	}

	return weir.WithHeaders(ctx, headers), contentType, nil
}
