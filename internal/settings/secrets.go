package settings

import (
	"net/url"
	"reflect"
	"slices"
	"strings"

	"weir/internal/conceal"
	"weir/internal/signin"
)

// proxyVariables are the names of the variables from which net/http takes proxies.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}

// FixedSecrets returns the secrets of the settings and of the proxies. It finds each setting by its
// type, so a new setting with a secret cannot be forgotten.
func (s *Settings) FixedSecrets(env func(string) string) []string {
	secrets := listSecrets(reflect.ValueOf(s).Elem())
	for _, name := range proxyVariables {
		secrets = append(secrets, env(name))
	}

	for _, value := range slices.Clone(secrets) {
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			secrets = append(secrets, conceal.AddressSecrets(u)...)
		}
	}

	for part := range strings.SplitSeq(string(s.Storage), ";") {
		if name, value, _ := strings.Cut(part, "="); name == "AccountKey" ||
			name == "SharedAccessSignature" {
			secrets = append(secrets, value)
		}
	}

	for name, value := range s.Delivery.Headers {
		secrets = append(secrets, conceal.HeaderSecrets(name, string(value))...)
	}

	return secrets
}

// listSecrets returns the values of type secret and signin.Secret in v.
func listSecrets(v reflect.Value) (secrets []string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[Secret]() || v.Type() == reflect.TypeFor[signin.Secret]() {
			return []string{v.String()}
		}

	case reflect.Pointer:
		if !v.IsNil() {
			return listSecrets(v.Elem())
		}

	case reflect.Slice:
		for i := range v.Len() {
			secrets = append(secrets, listSecrets(v.Index(i))...)
		}

	case reflect.Map:
		for _, key := range v.MapKeys() {
			secrets = append(secrets, listSecrets(v.MapIndex(key))...)
		}

	case reflect.Struct:
		// The CMS does not learn the private key of delivery.tls, and the fields can be names of
		// files.
		if v.Type() == reflect.TypeFor[signin.TLS]() ||
			!strings.HasPrefix(v.Type().PkgPath(), "weir/") {
			return nil
		}

		for i := range v.NumField() {
			secrets = append(secrets, listSecrets(v.Field(i))...)
		}
	}

	return secrets
}
