package mongowire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// ping is {ping: 1} in BSON.
var ping = []byte("\x0f\x00\x00\x00\x10ping\x00\x01\x00\x00\x00\x00")

func message(op uint32, body ...[]byte) Message {
	m := make(Message, headerLen)
	m = append(m, bytes.Join(body, nil)...)
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	binary.LittleEndian.PutUint32(m[4:], 77)
	binary.LittleEndian.PutUint32(m[12:], op)
	return m
}

func TestCommand(t *testing.T) {
	sequence := []byte("\x01\x0a\x00\x00\x00docs\x00\x00") // size 10 counts itself and the name
	for name, m := range map[string]Message{
		"msg":              message(opMsg, make([]byte, 5), ping),
		"msg checksum":     message(opMsg, []byte{1, 0, 0, 0, 0}, ping, []byte{9, 9, 9, 9}),
		"msg sequence 1st": message(opMsg, make([]byte, 4), sequence, []byte{0}, ping),
		"query":            message(opQuery, make([]byte, 4), []byte("admin.$cmd\x00"), make([]byte, 8), ping),
	} {
		got, err := Read(bytes.NewReader(m))
		if err != nil || !bytes.Equal(got, m) {
			t.Fatalf("%s: %v", name, err)
		}
		if doc, err := got.Command(); err != nil || !bytes.Equal(doc, ping) || got.Name() != "ping" || got.MoreToCome() {
			t.Errorf("%s: %q %v", name, doc, err)
		}
		reply := got.Reply(ping)
		if back, err := Read(bytes.NewReader(reply)); err != nil || back.int32(8) != 77 {
			t.Errorf("%s: reply %q %v", name, reply, err)
		}
	}
	if !message(opMsg, []byte{2, 0, 0, 0, 0}, ping).MoreToCome() {
		t.Error("moreToCome is not seen")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(message(opMsg, make([]byte, 5), ping)))
	f.Add([]byte(message(opQuery, make([]byte, 4), []byte("admin.$cmd\x00"), make([]byte, 8), ping)))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		if _, err := m.Command(); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		_, _, _ = m.Name(), m.MoreToCome(), m.Reply(ping)
	})
}
