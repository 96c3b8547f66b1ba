// Package repository consists of tests of the repository as a whole: which package may import
// which, which keys a log line may have, that goroutines have guards, and that the documents and
// the development container are true to the tree.
package repository
