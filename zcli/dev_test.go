package zcli

import (
	"net"
	"slices"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"zgame/znode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every gate lets in the pages of all nodes, and of nobody else; also where the system chooses the pages' ports.
func TestOriginsOfPages(t *testing.T) {
	app := znode.App{Page: fstest.MapFS{}}
	for _, tt := range []struct {
		page string
		open bool // before the nodes start
	}{{"127.0.0.1:8080", false}, {"127.0.0.1:0", true}} {
		list := make([]znode.Settings, 3)
		for k := range list {
			address, err := addPort(tt.page, k)
			if err != nil {
				t.Fatal(err)
			}
			list[k].Page.Address = address
		}
		pages, err := openPages(t.Context(), app, list)
		defer closeAll(pages)
		if err != nil {
			t.Fatal(err)
		}
		welcomePages(list)
		var want []string
		for k, s := range list {
			host, port, err := net.SplitHostPort(s.Page.Address)
			if err != nil || host != "127.0.0.1" || port == "0" {
				t.Errorf("%s: page %d has address %q", tt.page, k, s.Page.Address)
			}
			if (pages[k] != nil) != tt.open || tt.open && pages[k].Addr().String() != s.Page.Address {
				t.Errorf("%s: page %d at %s has listener %v", tt.page, k, s.Page.Address, pages[k])
			}
			want = append(want, "http://localhost:"+port, "http://127.0.0.1:"+port)
		}
		for k, s := range list {
			if !slices.Equal(s.Gate.Origins, want) {
				t.Errorf("%s: gate %d lets in %v, want %v", tt.page, k, s.Gate.Origins, want)
			}
		}
	}
	// No page, no port.
	list := make([]znode.Settings, 1)
	list[0].Page.Address = "127.0.0.1:0"
	if pages, err := openPages(t.Context(), znode.App{}, list); err != nil || pages[0] != nil {
		t.Errorf("an app without a page got %v, %v", pages, err)
	}
}
