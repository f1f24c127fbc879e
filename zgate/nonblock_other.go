//go:build !unix

package zgate

// writeNonblocking refuses everything: on this system, every write takes the way of a refused one.
func writeNonblocking(uintptr, []byte) (int, error) { return 0, nil }

// readNonblocking is never called on this system.
func readNonblocking(uintptr, []byte) (n int, again bool, err error) { return 0, true, nil }

const canTry = false
