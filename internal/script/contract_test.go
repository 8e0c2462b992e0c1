package script_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

var (
	headerKey   = regexp.MustCompile(`(?m)^-- KEYS\[(\d+)\] +(\w+) +(\w+)`)
	headerEach  = regexp.MustCompile(`(?m)^-- KEYS\[(\d+)\.\.\] +for each [^:]*: (.*)$`)
	assignment  = regexp.MustCompile(`(?m)^ *local ([\w, ]+) = (.*)$`)
	bodyKey     = regexp.MustCompile(`^KEYS\[(\d+)\]$`)
	bodyEach    = regexp.MustCompile(`^KEYS\[i(?: \+ (\d+))?\]$`)
	bodyLoop    = regexp.MustCompile(`for i = (\d+), #KEYS(?:, (\d+))?`)
	bodyHowMany = regexp.MustCompile(`#KEYS > (\d+)`)
	headerRow   = regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\.\.\] +for each message: (.*)$`)
	bodyRow     = regexp.MustCompile(`local ([\w, ]+) = columns\((\d+), (\d+)\)`)
	expectation = regexp.MustCompile(`expect_(hash|zset)(?:e?s)\(([\w, ]+)\)`)
	documented  = regexp.MustCompile("(?m)^\\| `(?:T:|{prefix:)(\\w+)(:G)?}?` \\| (\\w+) \\|")
)

// all are the scripts of all packages.
func all() []*script.Script { return append(queue.Scripts(), inspect.Scripts()...) }

// luaFiles are the files of Lua code of all packages, by their paths.
func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range []string{"../script/lua", "../queue/lua", "../inspect/lua"} {
		files, err := filepath.Glob(folder + "/*")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[file] = string(text)
		}
	}
	return texts
}

// TestEachScriptIsDeclared in the package that has it, and each library is used.
func TestEachScriptIsDeclared(t *testing.T) {
	used := map[string]int{}
	for folder, scripts := range map[string][]*script.Script{"queue": queue.Scripts(), "inspect": inspect.Scripts()} {
		for _, s := range scripts {
			for i, file := range s.Files() {
				used[file.Text]++
				if i == len(s.Files())-1 {
					assert.Equal(t, file.Text, luaFiles(t)["../"+folder+"/lua/"+s.Name()+".lua"], s.Name())
					assert.Equal(t, 1, used[file.Text], "%s is declared twice", s.Name())
				}
			}
		}
	}
	for path, text := range luaFiles(t) {
		assert.NotZero(t, used[text], "nothing declares %s", path)
	}
}

// TestKeysAreInTheSameOrderEverywhere: in a script's header, in its body, and in Go.
func TestKeysAreInTheSameOrderEverywhere(t *testing.T) {
	for _, s := range all() {
		t.Run(s.Name(), func(t *testing.T) {
			header, body := splitHeader(s.Files()[len(s.Files())-1].Text)
			once, many := keysOfHeader(t, header)
			_, each, _ := s.Keys()
			assert.Equal(t, named(s), once, "the keys in the header")
			assert.Equal(t, called(each), many, "the keys for each group in the header")
			for place, name := range keysOfBody(body) {
				n, _ := strconv.Atoi(strings.TrimPrefix(place, "+"))
				if strings.HasPrefix(place, "+") {
					require.Less(t, n, len(each), "KEYS[i + %d] is declared", n)
					assert.Equal(t, each[n].Name(), name, "the body's name of KEYS[i + %d]", n)
				} else {
					require.LessOrEqual(t, n, len(once), "KEYS[%d] is declared", n)
					want, _, _ := strings.Cut(once[n-1], " ")
					assert.Equal(t, want, name, "the body's name of KEYS[%d]", n)
				}
			}
			checkLoops(t, s, body)
			checkRows(t, header, body)
			checkTypes(t, s, body)
		})
	}
}

// keysOfHeader reads the KEYS of a header, in their order.
func keysOfHeader(t *testing.T, header string) (once, many []string) {
	t.Helper()
	for n, match := range headerKey.FindAllStringSubmatch(header, -1) {
		require.Equal(t, strconv.Itoa(n+1), match[1])
		once = append(once, match[2]+" "+match[3])
	}
	for _, match := range headerEach.FindAllStringSubmatch(header, -1) {
		require.Equal(t, strconv.Itoa(len(once)+1), match[1])
		many = append(many, strings.Split(match[2], ", ")...)
	}
	return once, many
}

// keysOfBody returns the names that a body gives to KEYS: by number, or by "+" and the
// offset for the keys of each group.
func keysOfBody(body string) map[string]string {
	list := map[string]string{}
	for _, match := range assignment.FindAllStringSubmatch(body, -1) {
		left, right := strings.Split(match[1], ", "), strings.Split(match[2], ", ")
		for i, value := range right {
			if key := bodyKey.FindStringSubmatch(value); key != nil {
				list[key[1]] = left[i]
			}
			if key := bodyEach.FindStringSubmatch(value); key != nil {
				list["+"+key[1]] = left[i]
			}
		}
	}
	return list
}

// checkLoops checks where a body loops over the keys of each group.
func checkLoops(t *testing.T, s *script.Script, body string) {
	t.Helper()
	keys, each, _ := s.Keys()
	loops := bodyLoop.FindAllStringSubmatch(body, -1)
	assert.Equal(t, len(each) > 0, len(loops) > 0)
	for _, match := range loops {
		assert.Equal(t, strconv.Itoa(len(keys)+1), match[1], "%s", match[0])
		if step := strconv.Itoa(len(each)); step != "1" || match[2] != "" {
			assert.Equal(t, step, match[2], "%s", match[0])
		}
	}
	for _, match := range bodyHowMany.FindAllStringSubmatch(body, -1) {
		assert.Equal(t, strconv.Itoa(len(keys)), match[1], "%s", match[0])
	}
}

// checkRows checks that a body reads as many values for each message as the header declares.
func checkRows(t *testing.T, header, body string) {
	t.Helper()
	declared, used := headerRow.FindAllStringSubmatch(header, -1), bodyRow.FindAllStringSubmatch(body, -1)
	require.Len(t, used, len(declared))
	for i, row := range declared {
		width := len(strings.Split(row[2], ", "))
		assert.Equal(t, row[1], used[i][2])
		assert.Equal(t, strconv.Itoa(width), used[i][3], "%s", row[0])
		assert.Len(t, strings.Split(used[i][1], ", "), width, "%s", used[i][0])
	}
}

// checkTypes checks that a body expects the right type of each key.
func checkTypes(t *testing.T, s *script.Script, body string) {
	t.Helper()
	for _, match := range expectation.FindAllStringSubmatch(body, -1) {
		for _, name := range strings.Split(match[2], ", ") {
			assert.Contains(t, named(s), name+" "+match[1])
		}
	}
}

func named(s *script.Script) []string {
	keys, _, foreigners := s.Keys()
	var names []string
	for _, k := range keys {
		names = append(names, k.Name()+" "+k.Type())
	}
	for _, foreign := range foreigners {
		names = append(names, foreign+" "+foreign)
	}
	return names
}

func called(list []script.Kind) []string {
	var names []string
	for _, k := range list {
		names = append(names, k.Name())
	}
	return names
}

// TestKindsOfKeysMatchTheDocumentation of the protocol.
func TestKindsOfKeysMatchTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/inside/protocol.md")
	require.NoError(t, err)
	var want []string
	for _, match := range documented.FindAllStringSubmatch(string(text), -1) {
		want = append(want, match[1]+match[2]+" "+match[3])
	}
	var got []string
	for _, k := range script.Kinds() {
		name := k.Name()
		if k.OfGroup() {
			name += ":G"
		}
		got = append(got, name+" "+k.Type())
	}
	slices.Sort(want)
	slices.Sort(got)
	assert.Equal(t, want, got)
}
