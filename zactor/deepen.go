package zactor

// encoded reports whether the item has to be decoded: it came over a wire. Then more of the stack is needed than a goroutine begins with.
func (it *item) encoded() bool {
	return it.kind == itemTold || it.kind == itemMessage && it.msg != nil && it.msg.Value == nil
}
