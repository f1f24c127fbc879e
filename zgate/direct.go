package zgate

import "encoding/binary"

// direct returns the next message where all of it is in hand in the form that nearly all messages have: one frame, masked, without
// reserved bits. ok is false where gorilla is to read: what has come is something else, is not whole, or is to be refused; gorilla has
// taken nothing of it yet, since Read hands it no more than a frame at a time. An error is the transport's, or with ok that of a message that
// was compressed.
func (c *conn) direct() (m message, ok bool, err error) {
	if c.raw == nil {
		return m, false, nil
	}
	if c.in == nil || c.inAt == len(c.in.b) {
		c.dropIn()
		if err := c.receive(); err != nil {
			return m, false, err
		}
	}
	b := c.in.b[c.inAt:]
	if len(b) < 6 || b[1]&0x80 == 0 {
		return m, false, nil
	}
	limit, op := c.guard.limit, b[0]
	if op != 0x80|opBinary && op != 0x80|opText {
		if op &^= rsv1; !c.deflates || op == b[0] || op != 0x80|opBinary && op != 0x80|opText {
			return m, false, nil
		}
		limit = deflatedLimit(limit)
	}
	head, n := 6, int(b[1]&0x7f)
	switch n {
	case 126:
		if len(b) < 8 {
			return m, false, nil
		}
		head, n = 8, int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		return m, false, nil // more than a chunk holds
	}
	if len(b) < head+n || int64(n) > limit {
		return m, false, nil
	}
	payload := b[head : head+n : head+n]
	unmask(payload, binary.LittleEndian.Uint32(b[head-4:]))
	c.inAt += head + n // the chunk stays until the next message is wanted
	m = message{int(op & 0x0f), payload}
	if op != b[0] {
		m, err = c.inflated(m)
	}
	return m, true, err
}

// unmask undoes a client's masking, RFC 6455 section 5.3.
func unmask(b []byte, key uint32) {
	if key == 0 {
		return
	}
	twice := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^twice)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(key >> (8 * (i & 3)))
	}
}
