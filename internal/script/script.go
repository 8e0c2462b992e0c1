package script

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// shared has the libraries that scripts of several packages use.
//
//go:embed lua/lib*.lua
var shared embed.FS

// Script is a script with the kinds of its KEYS: first those of the partition and of one group,
// then those that are repeated for each of several groups. Keys of other programs may follow. It
// has a plain form and one for a Cluster, where a notification stays on the nodes of its slot.
type Script struct {
	name           string
	keys, each     []Kind
	foreign        []string
	awaited        bool
	folder         fs.FS
	files          []File // libraries, then the script itself
	plain, sharded *redis.Script
}

// File is a file of Lua code.
type File struct{ Name, Text string }

// New returns the script in the file <name>.lua of a folder named lua. The file's header declares its KEYS. New adds only libraries
// that scripts with such KEYS need, because each function of a library takes time in each call.
func New(folder fs.FS, name string) *Script {
	file := fileOf(folder, name)
	s := &Script{name: name, folder: folder}
	s.keys, s.each, s.foreign = declaredKeys(file.Text)
	for _, library := range librariesFor(s.keys, s.each) {
		s.files = append(s.files, fileOf(shared, library))
	}
	s.files = append(s.files, file)
	return s.compiled()
}

// declaredKeys reads the part "KEYS a, b; for each group: c, d" of a header. The name "stream", a type of values,
// stands for the key of another program.
func declaredKeys(header string) (keys, each []Kind, foreign []string) {
	_, list, _ := strings.Cut(header, "\n-- KEYS ")
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\n--    ", ""), "\n")
	list, repeated, _ := strings.Cut(list, "; for each group:")
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "stream" {
			foreign = append(foreign, name)
		} else {
			keys = append(keys, kindNamed(name))
		}
	}
	if repeated != "" {
		for name := range strings.SplitSeq(repeated, ",") {
			each = append(each, kindNamed(strings.TrimSpace(name)))
		}
	}
	return keys, each, foreign
}

func librariesFor(keys, each []Kind) []string {
	libraries := []string{"lib"}
	if slices.Contains(keys, Refs) {
		libraries = append(libraries, "lib_refs")
	}
	if slices.ContainsFunc(keys, func(k Kind) bool { return k == Groups || k == Settings || k == ConsumersOf }) {
		libraries = append(libraries, "lib_groups")
	}
	if slices.Contains(keys, TurnsOf) || slices.Contains(each, TurnsOf) {
		libraries = append(libraries, "lib_order")
	}
	if slices.Contains(keys, Expiries) {
		libraries = append(libraries, "lib_expiry")
	}
	return libraries
}

// With adds libraries after the others, from the script's folder or the shared ones.
func (s *Script) With(libraries ...string) *Script {
	for _, library := range libraries {
		from := s.folder
		if _, err := fs.Stat(from, pathOf(library)); errors.Is(err, fs.ErrNotExist) {
			from = shared
		}
		s.files = slices.Insert(s.files, len(s.files)-1, fileOf(from, library))
	}
	return s.compiled()
}

// Prepend puts a library of the script's folder in front of all others.
func (s *Script) Prepend(library string) *Script {
	s.files = slices.Insert(s.files, 0, fileOf(s.folder, library))
	return s.compiled()
}

// WithoutLibraries makes the script do without libraries.
func (s *Script) WithoutLibraries() *Script {
	s.files = s.files[len(s.files)-1:]
	return s.compiled()
}

// Awaited marks a script whose callers have goroutines of their own and abandon calls themselves when a context ends: they publish
// and consume, where another goroutine per call would cost too much.
func (s *Script) Awaited() *Script {
	s.awaited = true
	return s
}

// IsAwaited reports whether the script is Awaited.
func (s *Script) IsAwaited() bool { return s.awaited }

func (s *Script) compiled() *Script {
	text := ""
	for _, file := range s.files {
		text += file.Text
	}
	s.plain = redis.NewScript(s.Head("PUBLISH") + text)
	s.sharded = redis.NewScript(s.Head("SPUBLISH") + text)
	return s
}

// Head returns the line in front of the script's files. It names the command for notifications, and
// the KEYS by their kinds or, for keys of other programs, by their types. The keys for each of several
// groups begin at EACH_FROM; each group has EACH_WIDTH of them.
func (s *Script) Head(notify string) string {
	var names, places []string
	for i, name := range slices.Concat(namesOf(s.keys), s.foreign) {
		names, places = append(names, name), append(places, fmt.Sprintf("KEYS[%d]", i+1))
	}
	head := fmt.Sprintf("local NOTIFY = '%s' local %s = %s", notify, strings.Join(names, ", "), strings.Join(places, ", "))
	if len(s.each) > 0 {
		head += fmt.Sprintf(" local EACH_FROM, EACH_WIDTH = %d, %d", len(names)+1, len(s.each))
	}
	return head + "\n"
}

func pathOf(name string) string { return "lua/" + name + ".lua" }

func fileOf(folder fs.FS, name string) File {
	text, err := fs.ReadFile(folder, pathOf(name))
	if err != nil {
		panic(err) // the file was missing at build time
	}
	return File{name, string(text)}
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Files returns the libraries of the script and, last, the script itself.
func (s *Script) Files() []File { return s.files }

// Keys returns the kinds of the KEYS: those of the partition and of one group, those for each of
// several groups, and the types of the keys of other programs.
func (s *Script) Keys() (keys, each []Kind, foreign []string) { return s.keys, s.each, s.foreign }

// typeAt returns the type of the value at KEYS[i+1].
func (s *Script) typeAt(i int) string {
	if i < len(s.keys) {
		return s.keys[i].Type()
	}
	if len(s.each) == 0 {
		return s.foreign[i-len(s.keys)]
	}
	return s.each[(i-len(s.keys))%len(s.each)].Type()
}
