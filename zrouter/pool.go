package zrouter

import "sync"

// pool runs what may block on at most limit goroutines of its own. Its queue, and the goroutines of one without a limit, are bounded by the
// objects: each has one read, one write and one load under way at most, and what waits for objects is bounded by MaxWaiting.
type pool struct {
	limit int

	mu      sync.Mutex
	idle    sync.Cond // nothing runs
	queue   []func() func()
	running int
}

func newPool(limit int) *pool {
	p := &pool{limit: limit}
	p.idle.L = &p.mu
	return p
}

func (p *pool) do(job func() func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.limit {
		p.queue = append(p.queue, job)
		return
	}
	p.running++
	go p.work(job) // owned by the pool; ends when nothing waits
}

func (p *pool) work(job func() func()) {
	for {
		if done := job(); done != nil {
			done()
		}
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.running--
			if p.running == 0 {
				p.queue = nil
				p.idle.Broadcast()
			}
			p.mu.Unlock()
			return
		}
		job = p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
	}
}

// close waits until nothing runs.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 {
		p.idle.Wait()
	}
}
