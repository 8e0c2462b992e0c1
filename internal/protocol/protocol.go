// Package protocol describes the scripts to programs in other languages: their text as Redis runs it, and what
// they take and answer. All of it comes from the scripts themselves.
package protocol

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts so
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
)

// Document is what `redisdelay protocol` prints.
type Document struct {
	Version string   `json:"version"` // of the protocol: refuse topics with a later major version
	Keys    []Key    `json:"keys"`
	Scripts []Script `json:"scripts"`
}

// Key is a kind of key.
type Key struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Form string `json:"form"` // T is {prefix:topic:partition}, G a consumer group
}

// Script is a script in the form in which Redis runs it.
type Script struct {
	Name string   `json:"name"`
	Does string   `json:"does"`
	Keys []string `json:"keys"` // names of kinds, in the order of KEYS
	// Each are the kinds of the keys that follow, for each of several groups.
	Each    []string `json:"each,omitempty"`
	Foreign []string `json:"foreign,omitempty"` // keys that are not ours, behind all others
	Args    []Arg    `json:"args"`
	Returns string   `json:"returns"`
	Notes   string   `json:"notes,omitempty"`
	SHA1    string   `json:"sha1"`
	Text    string   `json:"text"`
	// ShardedSHA1 is that of the form for a Cluster: the same text with SPUBLISH in place of the first PUBLISH.
	ShardedSHA1 string `json:"sharded_sha1"`
}

// Arg is a value of ARGV, or all from an index on.
type Arg struct {
	Index string `json:"index"` // from 1, as in 4, or in 4.. for all from there on
	Name  string `json:"name,omitempty"`
	About string `json:"about,omitempty"`
}

// all are the scripts of all packages.
func all() []*script.Script {
	return slices.Concat(queue.Scripts(), inspect.Scripts(), timetable.Scripts(), intake.Scripts())
}

// Describe describes all scripts or, if any are named, these in their order.
func Describe(names ...string) (Document, error) {
	d := Document{Version: queue.Version, Keys: keys()}
	if len(names) == 0 {
		for _, s := range all() {
			d.Scripts = append(d.Scripts, describe(s))
		}
		slices.SortFunc(d.Scripts, func(a, b Script) int { return strings.Compare(a.Name, b.Name) })
		return d, nil
	}
	scripts := all()
	for _, name := range names {
		at := slices.IndexFunc(scripts, func(s *script.Script) bool { return s.Name() == name })
		if at < 0 {
			return Document{}, fmt.Errorf("no script is called %q", name)
		}
		d.Scripts = append(d.Scripts, describe(scripts[at]))
	}
	return d, nil
}

// Names are the names of all scripts.
func Names() []string {
	var list []string
	for _, s := range all() {
		list = append(list, s.Name())
	}
	slices.Sort(list)
	return list
}

// Write writes the document as JSON.
func (d Document) Write(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}

func keys() []Key {
	var list []Key
	for _, k := range script.Kinds() {
		list = append(list, Key{Name: k.Name(), Type: k.Type(), Form: k.Form()})
	}
	return list
}

func describe(s *script.Script) Script {
	files := s.Files()
	text := ""
	for _, file := range files {
		text += file.Text
	}
	plain := s.Head("PUBLISH") + text
	d := headerOf(files[len(files)-1].Text)
	d.Name, d.Text, d.SHA1, d.ShardedSHA1 = s.Name(), plain, digest(plain), digest(s.Head("SPUBLISH")+text)
	keys, each, foreign := s.Keys()
	d.Keys, d.Each, d.Foreign = namesOf(keys), namesOf(each), foreign
	return d
}

func namesOf(kinds []script.Kind) (list []string) {
	for _, k := range kinds {
		list = append(list, k.Name())
	}
	return list
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts so
	return hex.EncodeToString(sum[:])
}
