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
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
)

var (
	headerRow   = regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\.\.\] +for each message: (.*)$`)
	bodyRow     = regexp.MustCompile(`local ([\w, ]+) = columns\((\d+), (\d+)\)`)
	expectation = regexp.MustCompile(`expect_(hash|zset)(?:e?s)\(([\w, ]+)\)`)
)

// globals are the globals of a script in Redis.
var globals = strings.Fields("KEYS ARGV redis cjson error ipairs math next pairs pcall string table tonumber tostring type unpack")

// all returns the scripts of all packages.
func all() []*script.Script {
	return slices.Concat(queue.Scripts(), inspect.Scripts(), timetable.Scripts(), intake.Scripts())
}

// luaFiles returns the Lua files of all packages by path.
func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range []string{"../script/lua", "../queue/lua", "../inspect/lua", "../timetable/lua", "../intake/lua"} {
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

// TestEachScriptIsDeclared by its package, and each library is used.
func TestEachScriptIsDeclared(t *testing.T) {
	used := map[string]int{}
	for folder, scripts := range map[string][]*script.Script{"queue": queue.Scripts(), "inspect": inspect.Scripts(), "timetable": timetable.Scripts(), "intake": intake.Scripts()} {
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

// TestNoScriptFormatsText: Redis's %s ends at a NUL, and keys may have any bytes.
func TestNoScriptFormatsText(t *testing.T) {
	for path, text := range luaFiles(t) {
		assert.Empty(t, regexp.MustCompile(`format\([^)]*%[sq]`).FindString(text), path)
	}
}

// TestScriptsUseTheKeysThatTheyDeclare: all of them, by name, and no others.
func TestScriptsUseTheKeysThatTheyDeclare(t *testing.T) {
	for _, s := range all() {
		t.Run(s.Name(), func(t *testing.T) {
			assert.Subset(t, globals, globalsOf(compile(t, s)), "what is neither declared nor from Redis")
			header, body := splitHeader(s.Files()[len(s.Files())-1].Text)
			keys, each, foreign := s.Keys()
			names := append(called(keys), foreign...)
			for _, name := range names {
				assert.Regexp(t, `\b`+name+`\b`, body, "declared, and not used")
			}
			assert.NotRegexp(t, `KEYS\[\d|\d+, #KEYS`, body, "the runner numbers keys")
			checkEach(t, each, body)
			checkRows(t, header, body)
			checkTypes(t, keys, body)
		})
	}
}

// checkEach checks that a body names the keys of each group in their order.
func checkEach(t *testing.T, each []script.Kind, body string) {
	t.Helper()
	if len(each) < 2 {
		return
	}
	assert.Contains(t, inOneLine(body), "for i = EACH_FROM, #KEYS, EACH_WIDTH do local "+
		strings.Join(called(each), ", ")+" = unpack(KEYS, i, i + EACH_WIDTH - 1) ")
}

func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func compile(t *testing.T, s *script.Script) *lua.FunctionProto {
	t.Helper()
	text := s.Head("PUBLISH")
	for _, file := range s.Files() {
		text += file.Text
	}
	chunk, err := parse.Parse(strings.NewReader(text), s.Name())
	require.NoError(t, err)
	function, err := lua.Compile(chunk, s.Name())
	require.NoError(t, err)
	return function
}

// globalsOf returns the global names that a function and its inner functions use.
func globalsOf(function *lua.FunctionProto) []string {
	var names []string
	for _, instruction := range function.Code { // as in Lua 5.1: 6 bits of code, 8 of a register, 18 of a constant
		if code := int(instruction >> 26); code == lua.OP_GETGLOBAL || code == lua.OP_SETGLOBAL {
			names = append(names, function.Constants[instruction&(1<<18-1)].String())
		}
	}
	for _, inner := range function.FunctionPrototypes {
		names = append(names, globalsOf(inner)...)
	}
	return names
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
func checkTypes(t *testing.T, keys []script.Kind, body string) {
	t.Helper()
	types := map[string]string{}
	for _, k := range keys {
		types[k.Name()] = k.Type()
	}
	for _, match := range expectation.FindAllStringSubmatch(body, -1) {
		for name := range strings.SplitSeq(match[2], ", ") {
			assert.Equal(t, match[1], types[name], name)
		}
	}
}

func called(list []script.Kind) []string {
	var names []string
	for _, k := range list {
		names = append(names, k.Name())
	}
	return names
}
