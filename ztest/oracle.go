package ztest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Oracle judges numbered messages: each sender numbers what it sends from 1, and a receiver says what it got. It knows
// what was lost, doubled and swapped. The zero Oracle is ready; methods may be called from any goroutine.
type Oracle struct {
	mu      sync.Mutex
	senders map[string]*seen
}

// seen is what came from one sender.
type seen struct {
	got     map[uint64]int // number -> how often
	highest uint64
	swapped []uint64 // came after a higher one, for the first time
}

// Got notes that number n of sender has arrived.
func (o *Oracle) Got(sender string, n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.senders == nil {
		o.senders = map[string]*seen{}
	}
	s := o.senders[sender]
	if s == nil {
		s = &seen{got: map[uint64]int{}}
		o.senders[sender] = s
	}
	s.got[n]++
	if s.got[n] == 1 && n < s.highest {
		s.swapped = append(s.swapped, n)
	}
	s.highest = max(s.highest, n)
}

// Count returns how many different numbers of sender have arrived.
func (o *Oracle) Count(sender string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.senders[sender]; s != nil {
		return len(s.got)
	}
	return 0
}

// Check returns nil when every number from 1 to last of each sender came once, in order, and nothing else; else an
// error that lists faults by kind.
func (o *Oracle) Check(last uint64, senders ...string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var faults []string
	for _, name := range senders {
		s := o.senders[name]
		if s == nil {
			s = &seen{}
		}
		var lost, doubled, foreign []uint64
		for n := uint64(1); n <= last; n++ {
			switch s.got[n] {
			case 0:
				lost = append(lost, n)
			case 1:
			default:
				doubled = append(doubled, n)
			}
		}
		for n := range s.got {
			if n == 0 || n > last {
				foreign = append(foreign, n)
			}
		}
		slices.Sort(foreign)
		for _, f := range []struct {
			kind string
			list []uint64
		}{{"lost", lost}, {"doubled", doubled}, {"swapped", s.swapped}, {"never sent", foreign}} {
			if len(f.list) > 0 {
				faults = append(faults, fmt.Sprintf("%s: %d %s: %s", name, len(f.list), f.kind, some(f.list)))
			}
		}
	}
	for name := range o.senders {
		if !slices.Contains(senders, name) {
			faults = append(faults, name+": sent nothing, but something came")
		}
	}
	if faults == nil {
		return nil
	}
	slices.Sort(faults)
	return fmt.Errorf("ztest: %s", strings.Join(faults, "; "))
}

// some prints the first numbers of a list.
func some(list []uint64) string {
	const most = 10
	if len(list) <= most {
		return fmt.Sprint(list)
	}
	return fmt.Sprint(list[:most]) + "…"
}
