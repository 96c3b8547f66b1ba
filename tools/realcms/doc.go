// Package realcms runs content management systems on this machine, for tests and demos: WordPress and Directus, each
// with its own database. The processes listen on loopback or on a Unix socket, and end with the process that started
// them. The systems are no test doubles: their programs come from Debian's packages and from npm.
//
// The package also has clients that write to each CMS without Weir, and a proxy that can lose answers of a CMS (Proxy).
// A Race is a burst of messages that tests and demos send through Weir or through these clients.
package realcms
