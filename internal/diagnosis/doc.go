// Package diagnosis checks an installation for the command `weir check`: the settings, the host,
// storage and the CMS. Each check returns a Finding, with the problem and how to correct it.
//
// The package makes no part of the system. Package app makes the parts, as far as the settings are
// right, and hands them over in a System.
package diagnosis
