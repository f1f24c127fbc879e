package natsbus

import (
	"net"
)

// dialer dials, and taps the connection.
type dialer struct {
	net.Dialer
	bus *Bus
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &tap{Conn: c, bus: d.bus}, nil
}

// tap tells the bus when nats.go's reader comes back for more: what it has read before is in the channels of the receivers; and
// whether a write is on its way.
type tap struct {
	net.Conn
	bus *Bus

	// Owned by the reader.
	last int // bytes of the read before
	n    int // bytes since the receivers were relieved
}

// Read implements net.Conn.
func (t *tap) Read(p []byte) (int, error) {
	relieve := t.n >= relieveEvery
	if relieve {
		t.n = 0
	}
	t.bus.arrived(t.last, relieve)
	n, err := t.Conn.Read(p)
	t.last = n
	t.n += n
	return n, err
}

// Write implements net.Conn.
func (t *tap) Write(p []byte) (int, error) {
	t.bus.writing.Add(1)
	defer t.bus.writing.Add(-1)
	return t.Conn.Write(p)
}
