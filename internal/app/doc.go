// Package app makes the parts of the process from its settings, and runs them.
//
//   - Settings (settings.go) come from the environment and weir.yaml.
//   - App (app.go) has the parts that need no connection: contracts, CMS client, storage account, metrics.
//   - pipeline (pipeline.go) is the way of a message through the process: the appender hands each stored
//     message over to the drainer.
//   - running (running.go) has all parts that need storage. They are made once, when storage is open.
//   - routes (routes.go) is the table of all addresses that the process answers.
//   - Server (server.go) serves a Functions host: it opens storage, answers requests, and stops in order.
//   - Poll, DrainLanes, NewResharder and Diagnose do the work of the commands; package cli prints it.
//
// Only this package knows all other packages: it chooses the adapters, and connects the parts by small interfaces.
package app
