// Package realcms runs content management systems on this machine, for tests and demos: WordPress and
// Directus, each with a database of its own. All of it listens on loopback or on a Unix socket, and
// ends with the process that started it. No test doubles are in this package: the programs come from
// Debian's packages and from npm.
//
// The package also has the clients without Weir, to which a run through Weir is compared (Race), and a
// proxy that loses answers (Proxy).
package realcms
