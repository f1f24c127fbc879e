package znode

import (
	"net/http"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// NodeStatus is what a node says of itself to operators.
type NodeStatus struct {
	Node      zmsg.NodeRef     `json:"node"`
	State     zdiscovery.State `json:"state"`
	Version   string           `json:"version"` // of the program
	Zone      string           `json:"zone,omitempty"`
	Started   time.Time        `json:"started"`
	Now       time.Time        `json:"now"`  // by its clock
	Up        time.Duration    `json:"up"`   // since Started, by the clock that nobody sets
	Load      uint32           `json:"load"` // 1000 is all it has
	Gate      string           `json:"gate,omitempty"`
	Console   string           `json:"console,omitempty"` // host:port
	Sessions  int              `json:"sessions"`          // of its gate
	Suspended int              `json:"suspended"`         // of them: whose client is away
	Actors    int              `json:"actors"`            // those of objects too
	Objects   int              `json:"objects"`           // in memory
	Kinds     []KindStatus     `json:"kinds"`             // that it hosts
}

// KindStatus is a kind of stateful actors.
type KindStatus struct {
	Type uint32 `json:"type"`
	Name string `json:"name"`
}

// Status says how the node is. It may be called from any goroutine, once it has been started.
func (n *Node) Status() NodeStatus {
	now := time.Now()
	s := NodeStatus{
		Now: now, Up: now.Sub(n.started),
		Node: n.Self(), State: *n.state.Load(), Version: Version(), Zone: n.cfg.Settings.Node.Zone, Started: n.started, Load: n.load.Load(),
		Gate: n.GateURL(), Console: n.ConsoleAddr(), Actors: n.group.Len(), Objects: n.objects.set.Resident(),
	}
	for _, k := range n.objects.kinds() {
		s.Kinds = append(s.Kinds, KindStatus{k.Type, k.Name})
	}
	if n.gate != nil {
		s.Sessions, s.Suspended = n.gate.Sessions(), n.gate.Suspended()
	}
	return s
}

func (n *Node) serveNode(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, n.Status())
}
