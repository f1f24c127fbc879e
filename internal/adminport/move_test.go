package adminport

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Whoever is called "." or ".." is reached as all others are; a redirect leads nowhere.
func TestSegments(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users/{user}/kick", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.PathValue("user")) })
	mux.HandleFunc("POST /kick", func(http.ResponseWriter, *http.Request) { t.Error("led elsewhere") })
	mux.HandleFunc("POST /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/kick", http.StatusTemporaryRedirect)
	})
	port := httptest.NewServer(mux)
	defer port.Close()
	address := strings.TrimPrefix(port.URL, "http://")
	for _, user := range []string{".", "..", "...", "a/b", "%2E", "ann", "../x"} {
		var got string
		if err := Fetch(t.Context(), address, http.MethodPost, "/users/"+Segment(user)+"/kick", &got); err != nil || got != user {
			t.Errorf("%q is reached as %q: %v", user, got, err)
		}
	}
	if err := Fetch(t.Context(), address, http.MethodPost, "/moved", nil); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a redirect: %v", err)
	}
}

// A move follows an object that others move meanwhile, and says what is so where it comes to nothing.
func TestMove(t *testing.T) {
	t.Parallel()
	k := zmsg.Key{Type: 2, Zone: 3, ID: "a/b c"}
	for _, c := range []struct {
		name   string
		owner  string
		moves  int  // times that the object is elsewhere when the move comes
		refuse bool // the target does
		to     string
		want   string // of the error; "": none
		from   string
	}{
		{name: "at once", owner: "a", to: "b", from: "a"},
		{name: "there already", owner: "b", to: "b", from: "b"},
		{name: "nobody has it", owner: "", to: "b", want: "nobody has it in memory"},
		{name: "moved by others, twice", owner: "a", moves: 2, to: "b", from: "a"},
		{name: "moved all the time", owner: "a", moves: 99, to: "b", want: "others move it all the time"},
		{name: "refused", owner: "a", refuse: true, to: "b", want: "409 the target drains"},
		{name: "of a node that is gone", owner: "x", to: "b", want: `the node "x" is not in the cluster`},
		{name: "of a node without a port", owner: "c", to: "b", want: "has no admin port"},
		{name: "of a node that is dead", owner: "dead", to: "b", want: "the node dead, which has it, cannot be asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			owner, version, asked := c.owner, 7, 0
			port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/node":
				case r.URL.EscapedPath() == "/objects/2/3/a%2Fb%20c" && r.Method == http.MethodGet:
					fmt.Fprintf(w, `{"owner": %q, "epoch": 1, "version": %d}`, owner, version)
				case r.URL.EscapedPath() == "/objects/2/3/a%2Fb%20c/move" && r.Method == http.MethodPost && r.URL.Query().Get("to") == "b":
					asked++
					if c.refuse {
						http.Error(w, "the target drains", http.StatusConflict)
						return
					}
					version++
					if asked <= c.moves {
						http.Error(w, "another has it", http.StatusConflict)
						return
					}
					owner = "b"
					fmt.Fprintf(w, `{"owner": "b", "epoch": 1, "version": %d}`, version)
				default:
					t.Errorf("asked for %s %s", r.Method, r.URL)
				}
			}))
			defer port.Close()
			address := strings.TrimPrefix(port.URL, "http://")
			nodes := []zdiscovery.Node{
				{Ref: zmsg.NodeRef{ID: "starting"}, State: zdiscovery.Starting, Admin: "127.0.0.1:1"},
				{Ref: zmsg.NodeRef{ID: "c"}, State: zdiscovery.Ready},
				{Ref: zmsg.NodeRef{ID: "dead"}, State: zdiscovery.Ready, Admin: "127.0.0.1:1"},
				{Ref: zmsg.NodeRef{ID: "a"}, State: zdiscovery.Ready, Admin: address},
			}
			m, err := (&Cluster{Nodes: nodes}).Move(t.Context(), k, c.to)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || m.From.Owner != c.from || m.To.Owner != "b" || asked > 0 && int(m.To.Version) != version {
				t.Errorf("got %+v, %v", m, err)
			}
		})
	}
}

// Whom to ask: those with a port, which serve; or the only one that is given. What is refused is said.
func TestWhom(t *testing.T) {
	t.Parallel()
	c := Cluster{Nodes: []zdiscovery.Node{
		{Ref: zmsg.NodeRef{ID: "a"}, State: zdiscovery.Starting, Admin: "127.0.0.1:1"},
		{Ref: zmsg.NodeRef{ID: "b"}, State: zdiscovery.Draining, Admin: "127.0.0.1:2"},
		{Ref: zmsg.NodeRef{ID: "c"}, State: zdiscovery.Ready},
		{Ref: zmsg.NodeRef{ID: "d"}, State: zdiscovery.Ready, Admin: "127.0.0.1:3"},
	}}
	if got := fmt.Sprint(c.Ports()); got != "[127.0.0.1:2 127.0.0.1:3]" {
		t.Errorf("ports: %s", got)
	}
	if _, err := c.Any(t.Context()); err == nil || !strings.Contains(err.Error(), "d@0 at 127.0.0.1:3") || strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("any: %v", err)
	}
	only := Cluster{Nodes: c.Nodes, Only: "127.0.0.1:4"}
	some, err := only.Any(t.Context())
	of, ofErr := only.Of("nobody")
	if got := fmt.Sprintln(only.Ports(), some, err, of, ofErr); got != "[127.0.0.1:4] 127.0.0.1:4 <nil> 127.0.0.1:4 <nil>\n" {
		t.Errorf("the only one: %s", got)
	}
	if err := c.Follow(t.Context(), "user=a", Followed{Fault: func(string, error) {}}); err == nil || !strings.Contains(err.Error(), "no node can be followed") {
		t.Errorf("follow: %v", err)
	}
}
