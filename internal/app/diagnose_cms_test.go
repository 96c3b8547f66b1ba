package app

import (
	"net"
	"testing"
)

func TestResolveProxyAndTestConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	through, target, err := resolveProxy("http://" + listener.Addr().String() + "/content/{key}?id={id}")
	if err != nil || through.Host != listener.Addr().String() {
		t.Fatalf("got %v for %v (%v), want %s", through, target, err, listener.Addr())
	}
	if err := testConnection(t.Context(), through, target); err != nil {
		t.Error(err)
	}
	listener.Close()
	if err := testConnection(t.Context(), through, target); err == nil {
		t.Error("port without a listener: got no error, want one")
	}
}
