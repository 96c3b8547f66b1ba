// Package folder opens the store of a folder (package embedded) for one process, and lets the other
// processes of this machine use it through that process: by a socket in the folder.
//
//	server, err := folder.Own(dir, embedded.Options{Program: "weir serve"}) // refuses a folder in use
//	other, err := folder.Open(dir, embedded.Options{Program: "weir lanes"}) // asks the owner, if there is one
//
// Both results are an Account, with all ports of storage. So a command works on a folder as on a
// storage account, whether a server runs or not; leases hold between all of them, because the
// process that has the folder keeps the leases of all.
//
// The socket is weir.sock, and only the user of the folder can open it. A call is an HTTP request
// to it, whose body and answer are encoded by encoding/gob.
package folder
