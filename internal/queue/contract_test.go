package queue

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
)

// scripts are all scripts.
var scripts = []*script{
	pushScript, putScript, unrecordScript, sweepScript, registerScript, raiseScript, enlistScript, neededScript,
	adoptScript, pauseScript, resumeScript, limitScript, retireScript, forgetScript, restoreScript, leaveScript, backlogScript,
	expireScript, expiringScript,
	claimScript, ackScript, relayScript, nackScript, extendScript, releaseScript, buryScript,
	requeueScript, discardScript,
	cancelScript, rescheduleScript, withdrawScript, retimeScript, namedScript, delistScript, dropScript,
	pageScript, countScript, rosterScript, surveyScript, tallyScript, aliveScript, gaugeScript, topicsScript,
	lookScript, holderScript, findScript,
	arriveScript, orphansScript, bodilessScript, straysScript, leftoversScript,
}

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

func TestEachScriptIsDeclared(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	declared := []string{idleLibrary + ".lua"}
	for _, library := range allLibraries {
		declared = append(declared, library+".lua")
	}
	for _, s := range scripts {
		declared = append(declared, s.name+".lua")
	}
	assert.ElementsMatch(t, files, declared)
}

// TestKeysAreInTheSameOrderEverywhere: in a script's header, in its body, and in Go.
func TestKeysAreInTheSameOrderEverywhere(t *testing.T) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			header, body := splitHeader(sourceOf(s.name))
			once, many := keysOfHeader(t, header)
			assert.Equal(t, named(s), once, "the keys in the header")
			assert.Equal(t, called(s.many), many, "the keys for each group in the header")
			for place, name := range keysOfBody(body) {
				n, _ := strconv.Atoi(strings.TrimPrefix(place, "+"))
				if strings.HasPrefix(place, "+") {
					require.Less(t, n, len(s.many), "KEYS[i + %d] is declared", n)
					assert.Equal(t, kinds[s.many[n]].name, name, "the body's name of KEYS[i + %d]", n)
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
func checkLoops(t *testing.T, s *script, body string) {
	t.Helper()
	loops := bodyLoop.FindAllStringSubmatch(body, -1)
	assert.Equal(t, len(s.many) > 0, len(loops) > 0)
	for _, match := range loops {
		assert.Equal(t, strconv.Itoa(len(s.once)+1), match[1], "%s", match[0])
		if step := strconv.Itoa(len(s.many)); step != "1" || match[2] != "" {
			assert.Equal(t, step, match[2], "%s", match[0])
		}
	}
	for _, match := range bodyHowMany.FindAllStringSubmatch(body, -1) {
		assert.Equal(t, strconv.Itoa(len(s.once)), match[1], "%s", match[0])
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
func checkTypes(t *testing.T, s *script, body string) {
	t.Helper()
	for _, match := range expectation.FindAllStringSubmatch(body, -1) {
		for _, name := range strings.Split(match[2], ", ") {
			assert.Contains(t, named(s), name+" "+match[1])
		}
	}
}

func named(s *script) []string {
	var names []string
	for _, k := range s.once {
		names = append(names, kinds[k].name+" "+kinds[k].holds)
	}
	for _, foreign := range s.beyond {
		names = append(names, foreign+" "+foreign)
	}
	return names
}

func called(list []kind) []string {
	var names []string
	for _, k := range list {
		names = append(names, kinds[k].name)
	}
	return names
}

func TestKeysAreBuiltInTheOrderDeclared(t *testing.T) {
	s := &script{once: []kind{unackOf, messages}, many: []kind{queueOf, deadOf}}
	assert.Equal(t, []string{
		"{p:t:0}:unack:g", "{p:t:0}:messages",
		"{p:t:0}:queue:x", "{p:t:0}:dead:x", "{p:t:0}:queue:y:z", "{p:t:0}:dead:y:z",
	}, s.keys(newNames("p", "t", 0), "g", []string{"x", "y:z"}))
	assert.Equal(t, []string{"zset", "hash", "zset", "zset", "zset", "zset"},
		[]string{s.holds(0), s.holds(1), s.holds(2), s.holds(3), s.holds(4), s.holds(5)})
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
	for k, described := range kinds {
		name := described.name
		if kind(k) >= queueOf {
			name += ":G"
		}
		got = append(got, name+" "+described.holds)
	}
	slices.Sort(want)
	slices.Sort(got)
	assert.Equal(t, want, got)
}
