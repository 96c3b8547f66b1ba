// Package limits refuses calls that Azure Storage refuses because of their arguments, such as a row
// that is too large. The implementations of the ports that do not speak to Azure share it, so that
// a call that Azure would refuse fails with each of them.
package limits
