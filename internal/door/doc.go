// Package door guards the HTTP address of a process that has no Functions host in front: weir
// serve.
//
//   - CheckAddress decides on which addresses a process may listen: on another address than
//     loopback it needs keys and TLS, or a proxy that ends TLS.
//   - Door checks the key of each function, as a Functions host does. Without keys it answers only
//     to names of this machine, so that no page of another site can reach it by a name of its own.
//   - A person signs in with a key on a page. The key is then in a cookie that only the process can
//     read.
//   - Certificates reads the certificate of TLS, and reads it again when its files have changed.
package door
