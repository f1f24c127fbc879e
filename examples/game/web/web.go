// Package web is the page of the game.
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
