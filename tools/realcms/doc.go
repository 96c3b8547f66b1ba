// Package realcms runs content management systems on this machine, for tests and demos, each with
// its own database: WordPress, and the CMSs of make test-cms (StartSite). The processes listen on
// loopback or on a Unix socket, and end with the process that started them. The systems are no test
// doubles: their programs come from Debian's packages and from npm.
//
// The package also has a client that writes to WordPress without Weir, and a proxy that can lose
// answers of a CMS, or answer in its place (Proxy). A Race is a burst of messages that tests and
// demos send through Weir or through the client.
package realcms
