package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/scanner"
	"go/token"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// without are the folders that hold no code of the product.
var without = []string{
	".cache", ".git", "bench", "bin", "docs", "examples", "scripts",
	"internal/verify",
}

// digest is the same as long as the product's code does the same: comments, blank lines and layout do not count.
func digest(root string) (string, error) {
	all := sha256.New()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if slices.Contains(without, name) || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		return add(all, path, name)
	})
	return hex.EncodeToString(all.Sum(nil))[:12], err
}

// add adds one file, if it decides what the product does.
func add(all hash.Hash, path, name string) error {
	var strip func([]byte) string
	switch {
	case strings.HasSuffix(name, "_test.go"):
		return nil
	case filepath.Ext(name) == ".go":
		strip = goCode
	case filepath.Ext(name) == ".lua":
		strip = luaCode
	case filepath.Base(name) == "go.mod": // it chooses the dependencies
		strip = func(text []byte) string { return string(text) }
	default:
		return nil
	}
	text, err := os.ReadFile(path)
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
