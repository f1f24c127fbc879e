package zrouter

import (
	"context"
	"sync"
)

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
	ended := false
	defer func() {
		if !ended { // runtime.Goexit in what a job calls; its object waits for ever, the others do not
			p.next()
		}
	}()
	for {
		if done := job(); done != nil {
			done()
		}
		if job = p.take(); job == nil {
			ended = true
			return
		}
	}
}

// next has another goroutine go on with what waits.
func (p *pool) next() {
	if job := p.take(); job != nil {
		go p.work(job)
	}
}

// take returns what waits for the longest time; nil ends the one who asks.
func (p *pool) take() (job func() func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.running--
		if p.running == 0 {
			p.queue = nil
			p.idle.Broadcast()
		}
		return nil
	}
	job = p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return job
}

// close waits until nothing runs, or ctx ends: what hangs in code of the application is left behind. Errors: ctx's.
func (p *pool) close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.idle.Wait()
	}
	return nil
}
