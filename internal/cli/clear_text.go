package cli

import (
	"fmt"
	"net/url"

	"weir/internal/settings"
)

// warnClearTextKey returns a warning if a function key would cross the network unencrypted;
// otherwise it returns "".
func warnClearTextKey(address, key string) string {
	u, err := url.Parse(address)
	if err != nil || key == "" || !settings.IsClearText(address) {
		return ""
	}
	return fmt.Sprintf("warning: the function key goes to %s unencrypted; use https", u.Host)
}
