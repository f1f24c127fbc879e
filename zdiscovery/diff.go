package zdiscovery

import (
	"fmt"
	"reflect"
)

// Diff says how the list changed from old to new; nil is the empty list. A node that started anew (same id, another
// epoch) is in left with its old record and in joined with the new one. All three are sorted by id.
func Diff(old, new *Snapshot) (joined, left, changed []Node) {
	var a, b []Node
	if old != nil {
		a = old.Nodes
	}
	if new != nil {
		b = new.Nodes
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Ref.ID < b[0].Ref.ID:
			left = append(left, a[0])
			a = a[1:]
		case len(a) == 0 || b[0].Ref.ID < a[0].Ref.ID:
			joined = append(joined, b[0])
			b = b[1:]
		default:
			if a[0].Ref != b[0].Ref {
				left = append(left, a[0])
				joined = append(joined, b[0])
			} else if !reflect.DeepEqual(a[0], b[0]) {
				changed = append(changed, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return joined, left, changed
}

// TakenError says that a node id is taken, and by whom. errors.Is(err, ErrTaken) holds.
type TakenError struct {
	Holder Node
}

// Error names the holder and its addresses.
func (e *TakenError) Error() string {
	h := e.Holder
	return fmt.Sprintf("%s: %q is %s since epoch %d (gate %s, admin %s)", ErrTaken, h.Ref.ID, h.State, h.Ref.Epoch, orNone(h.Gate), orNone(h.Admin))
}

// Unwrap returns ErrTaken.
func (e *TakenError) Unwrap() error { return ErrTaken }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
