package zactor

// deepStack is the room that deepen makes, in bytes: what decoding a message, handling it and sending the answer takes, and some more.
const deepStack = 5 << 10

// deepen has the runtime make room for deepStack bytes on this goroutine's stack, if that is not there. An actor's goroutine begins
// small each time the actor wakes; where what it does is known to need more, one growth now, with two frames to be copied, is
// several times cheaper than one or two in the depth of it: copying a stack looks up the maps of each frame. never is false; the
// compiler does not know, and so gives the function a large frame.
//
//go:noinline
func deepen(never bool) {
	if never {
		var room [deepStack]byte
		touch(&room)
	}
}

//go:noinline
func touch(room *[deepStack]byte) { room[0] = 1 }

// encoded reports whether the item has to be decoded: it came over a wire.
func (it *item) encoded() bool {
	return it.kind == itemTold || it.kind == itemMessage && it.msg != nil && it.msg.Value == nil
}
