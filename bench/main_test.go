package bench_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine is ignored: protoactor-go too ends all of its own when its actors are stopped and its system is shut down.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
