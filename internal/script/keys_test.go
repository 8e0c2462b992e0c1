package script

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// awkward are names that could break a hash tag or collide.
var awkward = []string{
	"a", "a:b", "b:a", "a}", "}a", "{a}", "{", "}", "%7D", "%", "%25", "a b", "ключ", "日本", ":", "a:0", "0", "a%3Ab", "\x00", "\n",
}

func TestNamesNeverCollide(t *testing.T) {
	seen := map[string]string{}
	for _, prefix := range []string{"p", "p:a", "p:a:0"} {
		for _, topic := range awkward {
			for _, number := range []int{0, 1, 10} {
				name := fmt.Sprintf("%q %q %d", prefix, topic, number)
				tag := string(NewKeyNames(prefix, topic, number))
				assert.Empty(t, seen[tag], "%s and %s share %s", name, seen[tag], tag)
				seen[tag] = name
				assert.Equal(t, len(tag)-1, strings.Index(tag, "}"), "the hash tag of %s ends early", name)
			}
		}
	}
}

func TestIDsSortInTheOrderTheyAreMade(t *testing.T) {
	ids := NewIDs()
	ids.last = ulid.Timestamp(time.Now().Add(time.Hour)) // as if the clock were set back after the first
	list := []string{ids.Next(time.Now(), Traits{})}
	for range 10_000 {
		list = append(list, ids.Next(time.Now(), Traits{}))
	}
	assert.True(t, slices.IsSorted(list))
	assert.Len(t, list[0], 26)
	assert.Equal(t, "k:1", ids.Next(time.Now(), Traits{Key: "k:1"})[27:])
}

func TestIDsAreUniqueAcrossGoroutines(t *testing.T) {
	ids := NewIDs()
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				id := ids.Next(time.Now(), Traits{})
				mu.Lock()
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen, 8000)
}

func TestIsKeyRecognizesKeysOfAnyPrefix(t *testing.T) {
	for _, prefix := range []string{"redisdelay", "a:b", "{x"} {
		for _, number := range []int{0, 3} {
			for _, k := range Kinds() {
				name := NewKeyNames(prefix, "a{:}%topic", number).Key(k, "g:}h")
				assert.True(t, IsKey(name), name)
			}
		}
		assert.True(t, IsKey((&Client{prefix: prefix}).Registry()))
	}
	for _, name := range []string{"orders", "{orders}", "{orders}:messages", "{a:b}:c", "orders:{1}:messages", "{a:topics}s", "x{a:b:0}:c"} {
		assert.False(t, IsKey(name), name)
	}
}

func TestKeysAreBuiltInTheOrderDeclared(t *testing.T) {
	s := &Script{keys: []Kind{UnackOf, Messages}, each: []Kind{QueueOf, DeadOf}}
	assert.Equal(t, []string{
		"{p:t:0}:unack:g", "{p:t:0}:messages",
		"{p:t:0}:queue:x", "{p:t:0}:dead:x", "{p:t:0}:queue:y:z", "{p:t:0}:dead:y:z",
	}, NewKeyNames("p", "t", 0).Keys(s, "g", "x", "y:z"))
	assert.Equal(t, []string{"zset", "hash", "zset", "zset", "zset", "zset"},
		[]string{s.typeAt(0), s.typeAt(1), s.typeAt(2), s.typeAt(3), s.typeAt(4), s.typeAt(5)})
}

// TestTheProtocolPageDescribesEachKindOfKey in the words of the table of kinds, with links.
func TestTheProtocolPageDescribesEachKindOfKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/inside/protocol.md")
	require.NoError(t, err)
	page := strings.ReplaceAll(regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`).ReplaceAllString(string(text), "$1"), "`", "")
	for k, kind := range kinds {
		name := Kind(k).Form()
		assert.Equal(t, 1, strings.Count(page, "\n| "+name+" | "), name)
		assert.Contains(t, page, fmt.Sprintf("\n| %s | %s | %s |\n", name, kind.holds, kind.meaning))
	}
	assert.Equal(t, len(kinds), len(regexp.MustCompile(`\n\| (T:|{prefix:)`).FindAllString(page, -1)))
}

func TestTheHeadOfAScriptNamesItsKeys(t *testing.T) {
	s := &Script{keys: []Kind{UnackOf, Messages}, foreign: []string{"stream"}}
	assert.Equal(t, "local NOTIFY = 'PUBLISH' local unack, messages, stream = KEYS[1], KEYS[2], KEYS[3]\n", s.Head("PUBLISH"))
	s = &Script{keys: []Kind{Scheduled}, each: []Kind{QueueOf, DeadOf}}
	assert.Equal(t, "local NOTIFY = 'SPUBLISH' local scheduled = KEYS[1] local EACH_FROM, EACH_WIDTH = 2, 2\n", s.Head("SPUBLISH"))
}
