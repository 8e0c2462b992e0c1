package protocol

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestEachScriptIsDescribed by all that its header says.
func TestEachScriptIsDescribed(t *testing.T) {
	d, err := Describe()
	require.NoError(t, err)
	require.Len(t, d.Scripts, len(all()))
	declared := regexp.MustCompile(`(?m)^-- ARGV\[(\d+(?:\.\.)?)\]`)
	for i, s := range d.Scripts {
		assert.NotEmpty(t, s.Does, s.Name)
		assert.NotEmpty(t, s.Keys, s.Name)
		assert.True(t, strings.HasPrefix(s.Returns, "{"), "%s returns %q", s.Name, s.Returns)
		var indexes []string
		for _, arg := range s.Args {
			indexes = append(indexes, arg.Index)
			assert.NotEmpty(t, arg.Name+arg.About, s.Name)
			assert.NotContains(t, arg.Name+arg.About, "  ", s.Name)
		}
		at := slices.Index(Names(), s.Name)
		assert.Equal(t, i, at)
		var want []string
		for _, m := range declared.FindAllStringSubmatch(s.Text, -1) {
			want = append(want, m[1])
		}
		assert.Equal(t, want, indexes, s.Name)
	}
}

func TestAHeaderIsRead(t *testing.T) {
	d := headerOf(`-- nack.lua: make messages due
-- later.
--
-- It counts.
--
-- KEYS     unack,
--          queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers
--                    listen
-- ARGV[3]  max deliveries, 0 for no limit
-- ARGV[4..]  for each message: id
-- Returns  { 'groups' } if
--            one is missing
--          { 'done', id }
--
-- An error is
-- certain.

local x = 1 -- no header
`)
	assert.Equal(t, Script{
		Does: "make messages due later.", Notes: "It counts.\nAn error is certain.",
		Args: []Arg{
			{"1", "group", ""},
			{"2", "channel", "where subscribers listen"},
			{"3", "", "max deliveries, 0 for no limit"},
			{"4..", "", "for each message: id"},
		},
		Returns: "{ 'groups' } if one is missing\n{ 'done', id }",
	}, d)
}

// TestTheLibraryRunsTheseScripts byte for byte: another client that loads them finds them loaded already.
func TestTheLibraryRunsTheseScripts(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "g" })
	s.Publish("a")
	s.Publish("b")
	s.Expect(messages, "a", "b")
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("c", "key", 0)))
	s.Expect(messages, "c")
	d, err := Describe("enlist", "needed", "raise", "register", "push", "claim", "ack")
	require.NoError(t, err)
	for _, script := range d.Scripts {
		found, err := s.Client.ScriptExists(t.Context(), script.SHA1).Result()
		require.NoError(t, err)
		assert.Equal(t, []bool{true}, found, script.Name)
	}
}

// TestTheFormForAClusterIsOneWordAway, as the document promises, and Redis agrees on both digests.
func TestTheFormForAClusterIsOneWordAway(t *testing.T) {
	client := redistest.Client(t)
	d, err := Describe()
	require.NoError(t, err)
	for _, s := range d.Scripts {
		sharded := strings.Replace(s.Text, "'PUBLISH'", "'SPUBLISH'", 1)
		for text, want := range map[string]string{s.Text: s.SHA1, sharded: s.ShardedSHA1} {
			sha, err := client.ScriptLoad(t.Context(), text).Result()
			require.NoError(t, err, s.Name)
			assert.Equal(t, want, sha, s.Name)
		}
	}
}

func TestUnknownScriptsAreRefused(t *testing.T) {
	_, err := Describe("push", "pull")
	assert.ErrorContains(t, err, `"pull"`)
}

func TestTheDocumentIsJSON(t *testing.T) {
	d, err := Describe("push")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, d.Write(&b))
	var back Document
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	assert.Equal(t, d, back)
	assert.NotContains(t, b.String(), `\u003c`, "it is no page of a browser")
}

// TestNoScriptIsLeftOut compares with the files, so that a package whose scripts are not listed is found.
func TestNoScriptIsLeftOut(t *testing.T) {
	files, err := filepath.Glob("../*/lua/*.lua")
	require.NoError(t, err)
	var want []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".lua"); name != "lib" && !strings.HasPrefix(name, "lib_") {
			want = append(want, name)
		}
	}
	assert.ElementsMatch(t, want, Names())
}

func TestTheKeysHaveTheFormsOfTheirTools(t *testing.T) {
	forms := map[string]string{}
	for _, k := range keys() {
		forms[k.Name] = k.Form
	}
	for name, want := range map[string]string{
		"topics": "{prefix:topics}", "versions": "{prefix:periodic}:versions", "entries": "{prefix:inbox}:entries",
		"refused": "{prefix:inbox}:refused", "scheduled": "T:scheduled", "lanes": "T:lanes:G",
	} {
		assert.Equal(t, want, forms[name])
	}
}
