// Package realcms runs content management systems on this machine, for tests and demos: WordPress and Directus, each
// with a database of its own. Their processes listen on loopback or on a Unix socket, and end with the process that
// started them. No system is a test double: the programs come from Debian's packages and from npm.
//
// The package also has clients that write to each CMS without Weir, a burst of messages for these clients or for Weir
// (Race), and a proxy that loses answers (Proxy).
package realcms
