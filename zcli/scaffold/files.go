package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// names are templates whose files are called otherwise: Go does not embed what begins with a dot, unless all of it.
var names = map[string]string{"gitignore": ".gitignore", "dockerignore": ".dockerignore"}

// around are the files around the program: build, deployment, README.
func (p *project) around() (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(templates, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		t, err := template.New(path.Base(name)).Delims("<<", ">>").Option("missingkey=error").ParseFS(templates, name)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, p); err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "templates/")
		if other, ok := names[name]; ok {
			name = other
		}
		files[name] = b.Bytes()
		return nil
	})
	return files, err
}

// sources are the sample's files under their new names, as the project has them.
func (p *project) sources() (map[string][]byte, error) {
	s := p.sample
	files := map[string][]byte{}
	for _, dir := range []string{s.Package, s.Page} {
		err := fs.WalkDir(s.Files, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			to, ok := p.place(name)
			if !ok || files[to] != nil {
				return nil
			}
			text, err := fs.ReadFile(s.Files, name)
			if err == nil {
				files[to], err = p.rewrite(name, text)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if files["main.go"] == nil {
		return nil, fmt.Errorf("the sample %s has no %s/cmd/%s/main.go", s.Name, s.Package, s.Package)
	}
	return files, nil
}

// place says where a file of the sample goes, and false for what is generated anew.
func (p *project) place(name string) (string, bool) {
	s := p.sample
	if strings.HasSuffix(name, ".pb.go") {
		return "", false
	}
	for _, m := range [][2]string{
		{s.Page + "/", "web/"},
		{s.Package + "/proto/", "proto/"},
		{s.Package + "/cmd/" + s.Package + "/", ""},
	} {
		if rest, ok := strings.CutPrefix(name, m[0]); ok {
			return m[1] + rest, true
		}
	}
	return name, true
}

// toClient matches how a page's tsconfig.json finds the TypeScript client.
var toClient = regexp.MustCompile(`"(?:\.\./)+clients/ts/`)

// rewrite makes a file of the sample one of the project.
func (p *project) rewrite(name string, text []byte) ([]byte, error) {
	from := p.sample.Import
	switch {
	case strings.HasSuffix(name, ".go"):
		s := strings.ReplaceAll(string(text), `"`+from+"/"+p.sample.Page+`"`, `"`+p.Module+`/web"`)
		s = strings.ReplaceAll(s, `"`+from+"/", `"`+p.Module+"/")
		return format.Source([]byte(s)) // imports are sorted within their group
	case strings.HasSuffix(name, ".proto"):
		return bytes.ReplaceAll(text, []byte(`"`+from+"/"), []byte(`"`+p.Module+"/")), nil
	case path.Base(name) == "tsconfig.json":
		return toClient.ReplaceAll(text, []byte(`"`+strings.ReplaceAll(p.Framework, "$", "$$")+"/clients/ts/")), nil
	}
	return text, nil
}
