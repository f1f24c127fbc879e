package zgate

import (
	"time"

	"zgame/zmsg"
)

// pastOwners remembers, for a while, the route version of objects that have no session here any more: the bind of an owner before may come late, in a
// lane of its own, and is not to take back what the newest one has let go. It belongs to a shard of boundObjects.
type pastOwners map[zmsg.Key]pastOwner

type pastOwner struct {
	version zmsg.RouteVersion
	until   time.Time
}

const (
	pastFor = time.Minute // longer than what a link keeps while the bus is down
	maxPast = 256         // of a shard; beyond, one goes for each that comes
)

// add remembers that the object has had an owner of that version.
func (p *pastOwners) add(k zmsg.Key, version zmsg.RouteVersion, now time.Time) {
	if *p == nil {
		*p = make(pastOwners)
	}
	if len(*p) >= maxPast {
		for key, o := range *p {
			if now.After(o.until) {
				delete(*p, key)
			}
		}
		for key := range *p {
			if len(*p) < maxPast {
				break
			}
			delete(*p, key)
		}
	}
	(*p)[k] = pastOwner{version, now.Add(pastFor)}
}

// older reports that a newer owner than that of version is remembered.
func (p pastOwners) older(k zmsg.Key, version zmsg.RouteVersion, now time.Time) bool {
	o, ok := p[k]
	return ok && version < o.version && now.Before(o.until)
}
