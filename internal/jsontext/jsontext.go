// Package jsontext reports whether JSON says what encoding/json makes of it.
package jsontext

import (
	"bytes"
	"regexp"
	"unicode/utf8"
)

// IsUnicode reports whether all strings in some JSON are Unicode. Else encoding/json decodes a part of them as U+FFFD, without
// a word: bytes that are not UTF-8, and an escaped half of a character without its other half.
func IsUnicode(text []byte) bool {
	halves := bytes.Contains(text, []byte(`\ud`)) || bytes.Contains(text, []byte(`\uD`))
	return utf8.Valid(text) && (!halves || halvesPaired.Match(text))
}

// halvesPaired matches JSON in which each escaped half of a character has its other half.
var halvesPaired = regexp.MustCompile(
	`^(?:[^\\]|\\[^u]|\\u(?:[^dD]...|[dD](?:[0-7]..|[89abAB]..\\u[dD][c-fC-F]..)))*$`)
