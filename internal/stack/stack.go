// Package stack makes room on goroutines' stacks before it is needed.
package stack

// room is what Deepen makes, in bytes: what decoding a message, handling it and sending the answer takes, and some more; reading an HTTP
// request, too.
const room = 5 << 10

// Deepen has the runtime make room for 5 KiB on this goroutine's stack, if that is not there. A goroutine begins with 2 KiB; where what it
// does is known to need more, one growth now, with two frames to be copied, is several times cheaper than one or two in the depth of it:
// copying a stack looks up the maps of each frame. never is false; the compiler does not know, and so gives the function a large frame.
//
//go:noinline
func Deepen(never bool) {
	if never {
		var b [room]byte
		touch(&b)
	}
}

//go:noinline
func touch(b *[room]byte) { b[0] = 1 }
