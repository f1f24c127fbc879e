package znode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"zgame/internal/adminport"
	"zgame/zgate"
)

// server is an HTTP server of the node with its end.
type server struct {
	http *http.Server
	ln   net.Listener
	done chan struct{} // closed when Serve has returned
}

// listen opens address. what and key are said when the port is in use.
func listen(ctx context.Context, what, key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, portError(what, key, address, err)
	}
	return ln, nil
}

// serve serves h on ln, which it takes.
func serve(what string, ln net.Listener, h http.Handler, log *slog.Logger) *server {
	s := &server{ln: ln, done: make(chan struct{}), http: &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}
	// Owned by the node; ends when stop closes the server, which waits for done.
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("http server ended", "server", what, "err", err)
		}
	}()
	return s
}

// portError says which port could not be opened and which setting moves it.
func portError(what, key, address string, err error) error {
	return fmt.Errorf("the %s cannot listen on %s: %w\n  set %s (dev: --%s) to a free port, or end the process that holds it", what, address, err, key, strings.TrimSuffix(key, ".address"))
}

// stop answers what is under way within ctx, then closes. It is nil-safe.
func (s *server) stop(ctx context.Context) {
	if s == nil {
		return
	}
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() //nolint:errcheck // the listener is closed already; connections are cut
	}
	<-s.done
}

// adminHandler serves metrics and health; see the table in docs/guide/operations.md.
//
// What changes something is not for browsers that look at another page: the port is without a password, and often on the machine of the one who browses.
func (n *Node) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{Registry: prometheus.NewRegistry()}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := n.Ready(ctx); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error()+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /objects/{type}/{zone}/{id}", n.serveObject)
	mux.HandleFunc("POST /objects/{type}/{zone}/{id}/move", n.serveMove)
	mux.HandleFunc("GET /users/{user}", n.serveUser)
	mux.HandleFunc("POST /users/{user}/kick", n.kickUser)
	mux.HandleFunc("GET /node", n.serveNode)
	mux.HandleFunc("GET /follow", n.serveFollow)
	mux.HandleFunc("GET /actors", serveList(n.listActors))
	mux.HandleFunc("GET /sessions", serveList(n.listSessions))
	mux.HandleFunc("GET /objects", serveList(n.listObjects))
	mux.HandleFunc("GET /history", serveList(n.listHistory))
	mux.HandleFunc("GET /handlers", n.serveHandlers)
	mux.HandleFunc("GET /charts", n.serveCharts)
	mux.HandleFunc("POST /call/{message}", n.serveCall)
	mux.HandleFunc("GET /drain", n.serveDrain)
	mux.HandleFunc("POST /drain", n.startDrain)
	if n.cfg.Settings.Admin.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	asked := http.NewCrossOriginProtection().Handler(mux)
	here := zgate.LoopbackHost(n.cfg.Settings.Admin.Address)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(adminport.NodeHeader, n.Self().ID)
		if host := (&url.URL{Host: r.Host}).Hostname(); here && !zgate.Loopback(host) && host != (&url.URL{Host: n.cfg.Settings.Admin.URL}).Hostname() {
			// A browser of this machine, whose page has its own name lead here.
			writeText(w, http.StatusForbidden, fmt.Sprintf("this port is asked for as %q: expected localhost, an address of this machine, or the host of admin.url\n", r.Host))
			return
		}
		asked.ServeHTTP(w, r)
	})
}

// pageConfig is what the page is told: where its gate is, and what there is to show.
type pageConfig struct {
	Gate  string   `json:"gate"`
	Node  string   `json:"node"`
	Name  string   `json:"name"`  // of the program
	Kinds []string `json:"kinds"` // of its objects
	Dev   bool     `json:"dev"`   // gate.auth.kind is dev: who looks is a developer
}

// pageHandler serves the application's page, and its pageConfig as /config.json.
func (n *Node) pageHandler() http.Handler {
	mux := http.NewServeMux()
	files := http.FileServerFS(n.cfg.App.Page)
	mux.Handle("GET /", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; connect-src *; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	}))
	mux.HandleFunc("GET /config.json", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, pageConfig{n.GateURL(), n.Self().ID, n.cfg.App.Name, n.objects.names, n.cfg.Settings.Gate.Auth.Kind == "dev"})
	})
	return mux
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a prober that is gone needs no answer
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it encodes; a reader that is gone needs no answer
}
