// Package commandtest is what the tests of this module's commands have in common.
package commandtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main is TestMain of a command that starts itself again: child says whether this process is such a one, and has then been it.
func Main(m *testing.M, child func() (was bool, err error)) {
	was, err := child()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case !was:
		goleak.VerifyTestMain(m)
	}
}
