package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"hash"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// without are the folders that hold no code of the product.
var without = []string{"bench", "examples", "scripts", "internal/verify"}

// digest is the same as long as the code that some packages are built from does the same: comments, blank lines and
// layout do not count, and neither does the code of tests.
func digest(root, packages string) (string, error) {
	folders, modules, err := builtFrom(root, packages)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	fmt.Fprintf(all, "%s\n", strings.Join(modules, "\n")) //nolint:errcheck // a hash takes all
	for _, folder := range folders {
		if slices.ContainsFunc(without, func(w string) bool { return folder == w || strings.HasPrefix(folder, w+"/") }) {
			continue
		}
		for _, dir := range []string{folder, folder + "/lua", folder + "/templates", folder + "/static"} {
			if err := addFolder(all, root, dir); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(all.Sum(nil))[:12], nil
}

// builtFrom returns the folders of the repository, relative to its root, and the modules of others, that some packages
// and their tests are built from.
func builtFrom(root, packages string) (folders, modules []string, err error) {
	const form = "{{with .Module}}{{if .Main}}{{$.Dir}}{{else}}{{.Path}}@{{.Version}}{{end}}{{end}}"
	list := exec.Command("go", append([]string{"list", "-deps", "-test", "-f", form}, strings.Fields(packages)...)...)
	list.Dir = root
	said, err := list.Output()
	if err != nil {
		var failure *exec.ExitError
		if errors.As(err, &failure) {
			err = fmt.Errorf("go list %s: %w: %s", packages, err, failure.Stderr)
		}
		return nil, nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, nil, err
	}
	for line := range strings.FieldsSeq(string(said)) {
		if !filepath.IsAbs(line) {
			modules = append(modules, line)
			continue
		}
		dir, err := filepath.Rel(root, line)
		if err != nil {
			return nil, nil, err
		}
		folders = append(folders, filepath.ToSlash(dir))
	}
	slices.Sort(folders)
	slices.Sort(modules)
	return slices.Compact(folders), slices.Compact(modules), nil
}

// addFolder adds the files of a folder, if there is one.
func addFolder(all hash.Hash, root, dir string) error {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if err == nil {
			err = add(all, filepath.Join(root, dir, entry.Name()), path.Join(dir, entry.Name()))
		}
	}
	return err
}

// add adds one file, if it decides what the product does.
func add(all hash.Hash, file, name string) error {
	var strip func([]byte) string
	switch {
	case strings.HasSuffix(name, "_test.go"):
		return nil
	case filepath.Ext(name) == ".go":
		strip = goCode
	case filepath.Ext(name) == ".lua":
		strip = luaCode
	case slices.Contains([]string{".html", ".css", ".js"}, filepath.Ext(name)): // of the dashboard
		strip = func(text []byte) string { return string(text) }
	default:
		return nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Fprintf(all, "%s\n%s\n", name, strip(text))
	}
	return err
}

// goCode is Go without comments, except those that the compiler reads.
func goCode(text []byte) string {
	var code strings.Builder
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(text)), text, nil, scanner.ScanComments)
	for {
		_, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return code.String()
		case kind == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
		case kind == token.SEMICOLON:
			code.WriteString(";\n") // written or not
		default:
			code.WriteString(kind.String() + " " + literal + "\n")
		}
	}
}

// luaCode is Lua without blank lines and lines of comment.
func luaCode(text []byte) string {
	var code strings.Builder
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			code.WriteString(line + "\n")
		}
	}
	return code.String()
}
