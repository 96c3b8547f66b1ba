package cli

import "testing"

// Commands on the stored data of a demo need its settings. The variables are written so that a
// shell takes them.
func TestDemo_ListExports(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"Folder": {map[string]string{"WEIR_DATA": "build/data",
			"WEIR_CMS_URL": "http://127.0.0.1:7072/api/content",
			"OTHER":        "x"},
			" WEIR_DATA='build/data' WEIR_CMS_URL='http://127.0.0.1:7072/api/content'"},
		"OtherSettings": {map[string]string{"WEIR_DATA": "my data", "WEIR_CMS_URL": "http://a/",
			"WEIR_CONFIG": "/o'neill/weir.yaml"},
			` WEIR_DATA='my data' WEIR_CMS_URL='http://a/' WEIR_CONFIG='/o'\''neill/weir.yaml'`},
		"StorageAccount": {map[string]string{"WEIR_CMS_URL": "http://a/"}, ""},
	} {
		d := demo{env: func(name string) string { return c.env[name] }}
		if got := d.listExports(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
