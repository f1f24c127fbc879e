package kvstore

import (
	"container/list"
	"sync"

	"zgame/zmsg"
)

// tokens remembers the heads of the documents that were read or written last, so that a write need not read first.
type tokens struct {
	limit int // at most this many; below 1: none

	mu    sync.Mutex
	order *list.List                 // of head, the last used in front; guarded by mu
	byKey map[zmsg.Key]*list.Element // guarded by mu
}

func newTokens(limit int) *tokens {
	return &tokens{limit: limit, order: list.New(), byKey: make(map[zmsg.Key]*list.Element)}
}

func (t *tokens) get(k zmsg.Key) (head, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byKey[k]
	if !ok {
		return head{}, false
	}
	t.order.MoveToFront(e)
	return e.Value.(head), true
}

// put remembers h without its state. An older one than what is there is ignored: answers may overtake each other.
func (t *tokens) put(h head) {
	if t.limit < 1 {
		return
	}
	h.rec.State, h.rec.Done, h.rec.Attachment = nil, nil, nil
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.byKey[h.rec.Key]; ok {
		if e.Value.(head).seq < h.seq {
			e.Value = h
		}
		t.order.MoveToFront(e)
		return
	}
	t.byKey[h.rec.Key] = t.order.PushFront(h)
	if t.order.Len() > t.limit {
		last := t.order.Back()
		t.order.Remove(last)
		delete(t.byKey, last.Value.(head).rec.Key)
	}
}

func (t *tokens) drop(k zmsg.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.byKey[k]; ok {
		t.order.Remove(e)
		delete(t.byKey, k)
	}
}
