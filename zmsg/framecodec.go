package zmsg

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"zgame/zmsg/wirepb"
)

// Field numbers of wirepb.Frame and wirepb.Packet.
const (
	frameKind    = 1
	frameID      = 2
	frameSeq     = 3
	frameCode    = 4
	frameText    = 5
	frameBody    = 6
	frameTimeout = 7
	frameControl = 8
	frameType    = 10
	frameOutcome = 11

	packetFrames = 1
)

// AppendFrame appends f as one wirepb.Frame: the bytes that deterministic proto.Marshal gives. Bytes in f.Text that
// are not UTF-8 are replaced, since the other side would refuse the whole packet for them. It does not allocate where
// dst has the room.
func AppendFrame(dst []byte, f *Frame) []byte {
	if !utf8.ValidString(f.Text) {
		g := *f
		g.Text = clean(f.Text)
		return appendFrame(dst, &g)
	}
	return appendFrame(dst, f)
}

// AppendPacketFrame appends f as one more frame of the wirepb.Packet in dst: a packet is a concatenation of such
// pieces. Like AppendFrame otherwise.
func AppendPacketFrame(dst []byte, f *Frame) []byte {
	if f.Text == "" && f.Control == nil && f.Code == 0 && f.Outcome == 0 {
		return appendPlain(dst, f)
	}
	if !utf8.ValidString(f.Text) {
		g := *f
		g.Text = clean(f.Text)
		return appendFrame(appendHead(dst, packetFrames, g.size()), &g)
	}
	return appendFrame(appendHead(dst, packetFrames, f.size()), f)
}

// appendPlain is AppendPacketFrame for what nearly all frames are: kind, id, seq, body and time-out.
func appendPlain(dst []byte, f *Frame) []byte {
	dst = append(AppendPacketHead(dst, f), f.Body...)
	if f.TimeoutMs == 0 {
		return dst
	}
	return appendNumber(dst, frameTimeout, uint64(f.TimeoutMs))
}

// AppendPacketHead is AppendPacketFrame up to the body, for those who have another way for that: the body is what has to follow. f has a kind,
// an id, a seq and a body at most.
func AppendPacketHead(dst []byte, f *Frame) []byte {
	const most = 11 + 11 + 6 + 11 + 11 // bytes of it
	start := len(dst)
	dst = slices.Grow(dst, most)
	h := dst[start : start+most]
	i := 2 // behind the frame's own tag and length, which nearly always is one byte
	if f.Kind != 0 {
		h[i] = frameKind<<3 | byte(protowire.VarintType)
		i = putUvarint(h, i+1, uint64(f.Kind))
	}
	if f.ID != 0 {
		h[i] = frameID<<3 | byte(protowire.VarintType)
		i = putUvarint(h, i+1, uint64(f.ID))
	}
	if f.Seq != 0 {
		h[i] = frameSeq<<3 | byte(protowire.VarintType)
		i = putUvarint(h, i+1, f.Seq)
	}
	n := len(f.Body)
	if n > 0 {
		h[i] = frameBody<<3 | byte(protowire.BytesType)
		i = putUvarint(h, i+1, uint64(n))
	}
	n += i - 2
	if f.TimeoutMs != 0 {
		n += 1 + protowire.SizeVarint(uint64(f.TimeoutMs))
	}
	h[0] = packetFrames<<3 | byte(protowire.BytesType)
	if n < 0x80 {
		h[1] = byte(n)
		return dst[:start+i]
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	copy(h[2+more:], h[2:i])
	putUvarint(h, 1, uint64(n))
	return dst[:start+i+more]
}

// size is the number of bytes that appendFrame appends.
func (f *Frame) size() int {
	n := sizeUint(frameKind, uint64(f.Kind)) + sizeUint(frameID, uint64(f.ID)) + sizeUint(frameSeq, f.Seq) +
		sizeUint(frameCode, uint64(f.Code)) + sizeBytes(frameText, len(f.Text)) + sizeBytes(frameBody, len(f.Body)) +
		sizeUint(frameTimeout, uint64(f.TimeoutMs))
	if f.Control != nil {
		n += tagSize(frameControl) + protowire.SizeBytes(len(f.Control))
	}
	return n + sizeUint(frameOutcome, uint64(f.Outcome))
}

func appendFrame(b []byte, f *Frame) []byte {
	b = appendUint(b, frameKind, uint64(f.Kind))
	b = appendUint(b, frameID, uint64(f.ID))
	b = appendUint(b, frameSeq, f.Seq)
	b = appendUint(b, frameCode, uint64(f.Code))
	b = appendString(b, frameText, f.Text)
	b = appendBytes(b, frameBody, f.Body)
	b = appendUint(b, frameTimeout, uint64(f.TimeoutMs))
	if f.Control != nil {
		b = append(appendHead(b, frameControl, len(f.Control)), f.Control...)
	}
	return appendUint(b, frameOutcome, uint64(f.Outcome))
}

// Decode sets f to the wirepb.Frame in b. Text, Body and Control alias b. Unknown fields are skipped, and so are the
// fields of text messages; an unknown outcome is Unknown. Control is not looked into: whoever unmarshals it learns whether it is well formed.
// Errors wrap ErrMalformed; f is not to be used then.
func (f *Frame) Decode(b []byte) error {
	*f = Frame{}
	// First what nearly every frame has, in its shortest form; whatever else comes is for the loop behind.
	for len(b) > 1 {
		tag, v, n := b[0], uint64(b[1]), 2
		if v >= 0x80 {
			v &= 0x7f
			for shift := 7; ; shift += 7 {
				if n == len(b) || n > 8 { // the last two bytes of the longest numbers have rules of their own
					return f.decode(b)
				}
				c := b[n]
				n++
				if v |= uint64(c&0x7f) << (shift & 63); c < 0x80 {
					break
				}
			}
		}
		switch tag {
		case frameKind<<3 | byte(protowire.VarintType):
			f.Kind = wirepb.FrameKind(v)
		case frameID<<3 | byte(protowire.VarintType):
			f.ID = uint32(v)
		case frameSeq<<3 | byte(protowire.VarintType):
			f.Seq = v
		case frameTimeout<<3 | byte(protowire.VarintType):
			f.TimeoutMs = uint32(v)
		case frameBody<<3 | byte(protowire.BytesType):
			if v > uint64(len(b)-n) {
				return f.decode(b)
			}
			end := n + int(v)
			f.Body = b[n:end:end]
			n = end
		default:
			return f.decode(b)
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	return f.decode(b)
}

// decode is Decode of fields that follow others.
func (f *Frame) decode(b []byte) error {
	var fl field
	for len(b) > 0 {
		n := fl.next(b)
		if n < 0 {
			return malformed("frame: bad field")
		}
		b = b[n:]
		if fl.typ == protowire.VarintType {
			switch fl.number {
			case frameKind:
				f.Kind = wirepb.FrameKind(fl.num)
			case frameID:
				f.ID = uint32(fl.num)
			case frameSeq:
				f.Seq = fl.num
			case frameCode:
				f.Code = Code(fl.num)
			case frameTimeout:
				f.TimeoutMs = uint32(fl.num)
			case frameOutcome:
				f.Outcome = outcomeOf(fl.num)
			default:
			}
			continue
		}
		if fl.typ != protowire.BytesType {
			continue
		}
		switch fl.number {
		case frameText:
			s, ok := alias(fl.data)
			if !ok {
				return malformed("frame: text is not UTF-8")
			}
			f.Text = s
		case frameBody:
			f.Body = fl.data
		case frameControl:
			if f.Control != nil {
				// Twice in one frame, which nobody sends: protobuf merges them, and well-formed encodings merge by
				// concatenation (two halves of a field do too, so look first).
				if !wellFormed(f.Control) || !wellFormed(fl.data) {
					return malformed("frame: control")
				}
				f.Control = append(slices.Clip(f.Control), fl.data...)
				continue
			}
			f.Control = fl.data
		case frameType:
			if !utf8.Valid(fl.data) {
				return malformed("frame: type is not UTF-8")
			}
		default:
		}
	}
	return nil
}

// NextFrame takes the first frame off packet, an encoded wirepb.Packet or the rest of one, and returns what follows
// it. Call it while the rest is not empty; how many frames a packet may have is the caller's limit. A packet that has
// bytes but no frame is malformed. f aliases packet as in Decode. Errors wrap ErrMalformed.
func NextFrame(packet []byte, f *Frame) (rest []byte, err error) {
	// What nearly all packets are: a frame of less than 128 bytes, and behind it nothing or another one.
	if n := len(packet); n > 1 && packet[0] == packetFrames<<3|byte(protowire.BytesType) && packet[1] < 0x80 {
		if end := 2 + int(packet[1]); end == n || end < n && packet[end] == packetFrames<<3|byte(protowire.BytesType) {
			return packet[end:], f.Decode(packet[2:end:end])
		}
	}
	var fl field
	for b := packet; len(b) > 0; {
		n := fl.next(b)
		if n < 0 {
			return nil, malformed("packet: bad field")
		}
		b = b[n:]
		if fl.number != packetFrames || fl.typ != protowire.BytesType {
			continue
		}
		frame := fl.data
		// Unknown fields behind the frame go with it, so that a rest that is not empty has a frame.
		for len(b) > 0 && b[0] != packetFrames<<3|byte(protowire.BytesType) {
			if n = fl.next(b); n < 0 {
				return nil, malformed("packet: bad field")
			}
			if fl.number == packetFrames && fl.typ == protowire.BytesType {
				break // a frame whose tag has an overlong encoding
			}
			b = b[n:]
		}
		return b, f.Decode(frame)
	}
	return nil, malformed("packet: no frame")
}
