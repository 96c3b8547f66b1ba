package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// valueTags are the validator's tags that a rule can have. Each looks at one value alone, and opens
// no file and no connection: otherwise a value from an upstream would choose the file or the host.
// A tag that is not in the list is refused, so that a new release of the validator adds none.
// docs/settings.md has the same lines.
var valueTags = strings.Fields(`
required omitempty isdefault
len min max eq ne lt lte gt gte eq_ignore_case ne_ignore_case
oneof oneofci noneof noneofci
contains containsany containsrune excludes excludesall excludesrune
startswith endswith startsnotwith endsnotwith
alpha alphaspace alphanum alphanumspace alphaunicode alphanumunicode
ascii printascii multibyte lowercase uppercase boolean number numeric
datetime timezone duration cron
email url http_url https_url uri origin urn_rfc2141 urn_rfc8141 datauri
hostname hostname_rfc1123 hostname_label hostname_port fqdn dns_rfc1035_label
ip ipv4 ipv6 cidr cidrv4 cidrv6 mac
uuid uuid3 uuid4 uuid5 uuid7 uuid_rfc4122 uuid3_rfc4122 uuid4_rfc4122 uuid5_rfc4122 ulid
isbn isbn10 isbn13 issn bic bic_iso_9362_2014 credit_card luhn_checksum ein ssn e164 semver cve
country_code eu_country_code iso3166_1_alpha2 iso3166_1_alpha2_eu iso3166_1_alpha3
iso3166_1_alpha3_eu iso3166_1_alpha_numeric iso3166_1_alpha_numeric_eu iso3166_2
iso4217 postcode_iso3166_alpha2
bcp47_language_tag bcp47_strict_language_tag latitude longitude
hexadecimal base32 base64 base64url base64rawurl html html_encoded url_encoded json jwt
iscolor hexcolor rgb rgba hsl hsla cmyk
md4 md5 sha256 sha384 sha512 ripemd128 ripemd160 tiger128 tiger160 tiger192
eth_addr eth_addr_checksum btc_addr btc_addr_bech32 mongodb mongodb_connection_string spicedb
`)

// ioTags are the validator's tags that open files or resolve host names.
var ioTags = []string{"file", "filepath", "dir", "dirpath", "image", "mimetype", "uds_exists",
	"unix_addr", "ip_addr", "ip4_addr", "ip6_addr",
	"tcp_addr", "tcp4_addr", "tcp6_addr", "udp_addr", "udp4_addr", "udp6_addr"}

// structTags are the tags that need a struct, a list or another field, besides those that
// needsOtherFields recognizes by their names.
var structTags = []string{"dive", "keys", "endkeys", "structonly", "nostructlevel", "omitnil",
	"omitzero", "unique", "validateFn",
	"skip_unless", "fieldcontains", "fieldexcludes", "-"}

// integerTags are the tags that apply to whole numbers of Go alone, and so neither to a text nor to a
// value with the type "number".
var integerTags = []string{"port", "iso4217_numeric"}

func needsOtherFields(tag string) bool {
	return slices.Contains(structTags, tag) || strings.HasSuffix(tag, "field") ||
		strings.HasPrefix(tag, "required_") || strings.HasPrefix(tag, "excluded_")
}

// explainRefusedTag returns the reason why a rule cannot have a tag.
func explainRefusedTag(name string) error {
	switch {
	case name == "":
		return errors.New("a part of it is empty")
	case slices.Contains(ioTags, name):
		return fmt.Errorf("%s reads files or asks the network, which a message must not cause", name)
	case slices.Contains(integerTags, name):
		return fmt.Errorf("%s does not apply to a text", name)
	case needsOtherFields(name):
		return fmt.Errorf("%q does not apply to a single value", name)
	}

	return fmt.Errorf("there is no rule %q", name)
}
