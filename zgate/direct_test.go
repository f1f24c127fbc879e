package zgate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"zgame/zmsg"
)

// Messages of one frame, which go past gorilla, of fragments with pings between them, and of more than a chunk, cut into any pieces: each
// comes through as it was sent, in order.
func TestMixedFrames(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := newRig(t)
	for round := range 8 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			c := r.dialRaw(true)
			c.hello("ann")
			var sent [][]byte
			var b []byte
			for i := range 100 {
				size := rnd.IntN(200)
				if i%10 == 0 {
					size = rnd.IntN(5000)
				}
				body := make([]byte, size)
				for k := range body {
					body[k] = byte(rnd.Uint32())
				}
				sent = append(sent, body)
				msg := zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: uint64(i + 1), Body: body})
				parts := 1
				if rnd.IntN(4) == 0 {
					parts = 1 + rnd.IntN(5)
				}
				for k := range parts {
					op := byte(0)
					if k == 0 {
						op = opBinary
					}
					if k == parts-1 {
						op |= 0x80
					}
					b = append(b, maskedFrame(op, msg[len(msg)*k/parts:len(msg)*(k+1)/parts])...)
					if rnd.IntN(20) == 0 {
						b = append(b, maskedFrame(0x89, []byte("p"))...)
					}
				}
			}
			go func() { // ends when all is written, or the test has closed the connection
				for len(b) > 0 {
					n := min(len(b), 1+rnd.IntN(3000))
					if _, err := c.Write(b[:n]); err != nil {
						return
					}
					b = b[n:]
				}
			}()
			for i := 0; i < len(sent); {
				op, p, err := c.wsRead()
				if err != nil {
					t.Fatalf("seed %d: answer %d: %v", seed, i, err)
				}
				if op == 0x80|opPong {
					continue
				}
				for len(p) > 0 && i < len(sent) {
					var f zmsg.Frame
					if p, err = zmsg.NextFrame(p, &f); err != nil {
						t.Fatal(err)
					}
					if f.Seq != uint64(i+1) || !bytes.Equal(f.Body, sent[i]) {
						t.Fatalf("seed %d: answer %d has seq %d and %d bytes, want %d bytes", seed, i, f.Seq, len(f.Body), len(sent[i]))
					}
					i++
				}
			}
			_ = c.Close()
		})
	}
}

func TestUnmask(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		key := [4]byte{1, 0xf2, 3, 0x84}
		b, want := make([]byte, n), make([]byte, n)
		for i := range b {
			want[i] = byte(3 * i)
			b[i] = want[i] ^ key[i&3]
		}
		unmask(b, binary.LittleEndian.Uint32(key[:]))
		if !bytes.Equal(b, want) {
			t.Errorf("%d bytes: %x, want %x", n, b, want)
		}
	}
}
