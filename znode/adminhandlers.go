package znode

import (
	"cmp"
	"net/http"
	"slices"
)

// HandlerStatus is what a node says of the handlers of one type of message to operators; there is one where actors.measure is set.
type HandlerStatus struct {
	Message string  `json:"message"`
	Handled uint64  `json:"handled"`
	Failed  uint64  `json:"failed"`  // of them: with another result than ok and deferred
	Seconds float64 `json:"seconds"` // that those took which were timed
	Timed   uint64  `json:"timed"`   // how many: of one-way messages a part
	P50     float64 `json:"p50"`     // seconds: an upper end of the half that was fastest; 0: not known
	P99     float64 `json:"p99"`
}

// serveHandlers lists the handlers, those first that took the most time.
func (n *Node) serveHandlers(w http.ResponseWriter, _ *http.Request) {
	list, err := n.handlers()
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	writeJSON(w, http.StatusOK, list)
}

func (n *Node) handlers() ([]HandlerStatus, error) {
	families, err := n.registry.Gather()
	if err != nil {
		return nil, err
	}
	of := map[string]*HandlerStatus{}
	get := func(name string) *HandlerStatus {
		if of[name] == nil {
			of[name] = &HandlerStatus{Message: name}
		}
		return of[name]
	}
	for _, f := range families {
		name := f.GetName()
		if name != "zgame_handler_handled_total" && name != "zgame_handler_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			h := get(labels["msg"])
			if x := m.GetHistogram(); x != nil {
				h.Seconds, h.Timed = x.GetSampleSum(), x.GetSampleCount()
				for _, b := range slices.Backward(x.GetBucket()) {
					if b.GetCumulativeCount()*100 >= h.Timed*99 {
						h.P99 = b.GetUpperBound()
					}
					if b.GetCumulativeCount()*2 >= h.Timed {
						h.P50 = b.GetUpperBound()
					}
				}
				continue
			}
			count := uint64(m.GetCounter().GetValue())
			h.Handled += count
			if r := labels["result"]; r != "ok" && r != "deferred" {
				h.Failed += count
			}
		}
	}
	list := make([]HandlerStatus, 0, len(of))
	for _, h := range of {
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b HandlerStatus) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Message, b.Message))
	})
	return list, nil
}
