//go:build linux

package seam

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
)

// At is a step that a node has reached with an object.
type At struct {
	Node string
	Step Step
	Key  string
}

// Listener is the test's side.
type Listener struct {
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	holds []*Hold // guarded by mu
}

// Hold is one wish to hold whoever reaches a step.
type Hold struct {
	at      At
	by      string        // the node that is held, before reached is closed
	taken   bool          // a process is held by it; guarded by the listener's mu
	reached chan struct{} // closed when a process is held
	resume  chan struct{} // closed by Release
	once    sync.Once
}

// Listen opens the socket in dir.
func Listen(dir string) (*Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(dir, socket))
	if err != nil {
		return nil, fmt.Errorf("seam: %w", err)
	}
	l := &Listener{ln: ln}
	l.wg.Go(func() { // ends with Close
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.serve(c) }) // ends when the process goes on, or has died
		}
	})
	return l, nil
}

// Hold holds the first process that reaches at from now on. An empty Node or Key is any.
func (l *Listener) Hold(at At) *Hold {
	h := &Hold{at: at, reached: make(chan struct{}), resume: make(chan struct{})}
	l.mu.Lock()
	l.holds = append(l.holds, h)
	l.mu.Unlock()
	return h
}

// Reached is closed when a process is held.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// By is the node that is held, once that is Reached.
func (h *Hold) By() string { return h.by }

// Release lets the process go on. It may be called more than once.
func (h *Hold) Release() { h.once.Do(func() { close(h.resume) }) }

// take returns the hold that at is for, if any: each is for one.
func (l *Listener) take(at At) *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if w := h.at; !h.taken && w.Step == at.Step && (w.Node == "" || w.Node == at.Node) && (w.Key == "" || w.Key == at.Key) {
			h.taken = true
			return h
		}
	}
	return nil
}

func (l *Listener) serve(c net.Conn) {
	defer c.Close()
	var at At
	if _, err := fmt.Fscanf(bufio.NewReader(c), "%s %s %s\n", &at.Node, &at.Step, &at.Key); err != nil {
		return
	}
	if h := l.take(at); h != nil {
		h.by = at.Node
		close(h.reached)
		<-h.resume
	}
	_, _ = c.Write([]byte("go\n")) // it may have died meanwhile
}

// Close lets all go on and ends the listener.
func (l *Listener) Close() {
	_ = l.ln.Close()
	l.mu.Lock()
	holds := l.holds
	l.holds = nil
	l.mu.Unlock()
	for _, h := range holds {
		h.Release()
	}
	l.wg.Wait()
}
