package weir

import (
	"fmt"
	"strings"
)

// CheckContentEncoding checks the values of the header Content-Encoding, or of a property with the same meaning. Weir
// reads only bodies that no coding has changed, so each coding except "identity" is an error of kind Unsupported. If a
// way in ignored the header, Weir would store the compressed bytes of a batch, and refuse them after its 202.
func CheckContentEncoding(values ...string) error {
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding = strings.Trim(coding, " \t")
		if coding == "" || strings.EqualFold(coding, "identity") {
			continue
		}
		return &Error{Kind: Unsupported, Op: "content encoding",
			Message: fmt.Sprintf("the Content-Encoding %s is not supported: send the body uncompressed; "+
				"a character set belongs in the Content-Type", quoteInput(coding))}
	}
	return nil
}
