// Package web is the page of the examples: people, rooms and whispers in one client. It shows what the server has.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Page returns the page's files, for znode.App.Page.
func Page() fs.FS {
	page, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return page
}
