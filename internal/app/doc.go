// Package app makes the parts of the process from its settings, and runs them.
//
//   - App (app.go) has the parts that need no connection: contracts, CMS client, storage account,
//     metrics.
//   - pipeline (pipeline.go) has the parts through which a message passes, from the appender to the
//     drainer.
//   - running (running.go) has all parts that need storage. They are created after storage was
//     opened.
//   - routes (routes.go) is the table of all addresses that the process answers.
//   - Server (server.go) serves a Functions host: it opens storage, answers requests, and stops
//     gracefully.
//   - Poll, Consume, DrainLanes, NewResharder, CompareLanes, OpenTrials and Diagnose do the work of
//     commands. Package cli prints the results.
//
// The settings come from package settings, and package diagnosis makes the checks of Diagnose.
//
// Only this package chooses the adapters, such as the client of the storage account. The package
// connects the parts by small interfaces.
package app
