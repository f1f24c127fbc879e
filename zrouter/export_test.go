package zrouter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zstore"
)

// RaceEnabled says that the race detector is on.
const RaceEnabled = raceEnabled

// Waiting is how many requests wait for objects of the set.
func Waiting(s *ManagerSet) int { return int(s.kept.Load()) }

// Owners is which message ids are objects'.
type Owners = owners

// GoneFor is how long ids stay a kind's that no node hosts any more.
const GoneFor = goneFor

// NextOwners is the table of a node that hosts nothing, after old.
func NextOwners(list *zdiscovery.Snapshot, old *Owners, now time.Time) *Owners {
	return newOwners(list, nil, old, now)
}

// OwnersText names the ids that are objects' now, with their types, and marks those of kinds that no node hosts.
func OwnersText(o *Owners, now time.Time) string {
	var ids []string
	for id, i := range o.ids {
		if i.over(now) {
			continue
		}
		text := fmt.Sprintf("%d:%d", id, i.typ)
		if !i.until.IsZero() {
			text += "?"
		}
		ids = append(ids, text)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// WarnOfOthers has the set log what it logs seldom, but for states that are too new.
func WarnOfOthers(s *ManagerSet) {
	s.storeFailed(&object{key: zmsg.Key{Type: 7, ID: "other"}}, zstore.OpRead, zstore.ErrUnavailable)
	s.lostOneWay(&call{})
}

// History is the ring behind ManagerSet.History.
type History struct{ h history }

// NewHistory returns an empty one.
func NewHistory() *History { return new(History) }

// Add adds p.
func (h *History) Add(p Passage) { h.h.add(p) }

// Get is ManagerSet.History.
func (h *History) Get(since uint64, k zmsg.Key, n int) []Passage { return h.h.get(since, k, n) }
