package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestATopicHasAtMostAHundredGroups(t *testing.T) {
	r := newScene(t)
	r.group("g")
	r.RegisterGroups(98)
	last := r.partition.Group("last")
	require.NoError(t, last.Register(t.Context()))
	err := r.partition.Group("one more").Register(t.Context())
	require.ErrorIs(t, err, ErrTooManyGroups)
	assert.Contains(t, err.Error(), "one more")
	require.NoError(t, last.Register(t.Context()), "it is registered already")
	assert.Equal(t, int64(MaxGroups), r.Client.SCard(t.Context(), r.partition.Key(script.Groups, "")).Val())
	_, err = r.partition.Group("one more").Claim(t.Context(), r.request("c", 1))
	require.ErrorIs(t, err, ErrTooManyGroups)
}

// TestGroupNamesAreKeptApart even if a name looks like a list of other names.
func TestGroupNamesAreKeptApart(t *testing.T) {
	r := newScene(t)
	names := append([]string{
		",", `","`, `"`, `\`, `a\`, `a"`, "a", "a,", ",a", `","a`, `a","b`, "b", "[]", `["a"]`, " ", "\u00fc", "\x00",
	}, awkwardNames...)
	for _, name := range names {
		r.group(name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	r.push(due("1"))
	for i, name := range names {
		g := r.partition.Group(name)
		require.Equal(t, []string{"1#1"}, r.claim(g, "c "+name, 1), "%q", name)
		ack(t, g, "1")
		_, left := r.State()["messages 1"]
		require.Equal(t, i < len(names)-1, left, "after %q", name)
	}
	assert.NotContains(t, r.State(), "messages 1")
	assert.NotContains(t, r.State(), "refs 1")
}

// awkwardNames are names that could break a hash tag or collide.
var awkwardNames = []string{"a", "a:b", "b:a", "a}", "{a}", "{", "}", "%7D", "%", "a b", "日本", ":", "a:0", "a%3Ab", "\x00", "\n"}

// groupsNamed registers this many groups.
func (r *scene) groupsNamed(count int) []*Group {
	r.T.Helper()
	list := make([]*Group, count)
	for i := range list {
		list[i] = r.group(fmt.Sprintf("g%d, of %d", i, count))
	}
	return list
}

func (r *scene) count(k script.Kind, group string) int64 {
	r.T.Helper()
	var cmd *redis.IntCmd
	switch key := r.partition.Key(k, group); k.Type() {
	case "hash":
		cmd = r.Client.HLen(r.Ctx(), key)
	default:
		cmd = r.Client.ZCard(r.Ctx(), key)
	}
	require.NoError(r.T, cmd.Err())
	return cmd.Val()
}

// claimUntil claims until the group has this many messages.
func (r *scene) claimUntil(g *Group, count int) (got []Claimed) {
	r.T.Helper()
	require.Eventually(r.T, func() bool {
		claims, err := g.Claim(r.Ctx(), r.request("c "+g.name, count))
		require.NoError(r.T, err)
		got = append(got, claims.Messages...)
		return len(got) == count
	}, time.Minute, time.Millisecond, "%s gets %d messages", g.name, count)
	return got
}

// TestTheLastOfManyGroupsRemovesAMessage: whichever group is the last, and whichever operation ends
// its messages, no earlier group removes the body, and nothing is left after the last one.
func TestTheLastOfManyGroupsRemovesAMessage(t *testing.T) {
	for _, count := range []int{2, MaxGroups} {
		t.Run(strconv.Itoa(count), func(t *testing.T) {
			r := newScene(t)
			groups := r.groupsNamed(count)
			ids := []string{keyed(1, "k"), keyed(2, "l"), keyed(3, "m")}
			r.push(due(ids[0]), due(ids[1]), due(ids[2]))
			for _, g := range groups {
				r.claimUntil(g, len(ids))
			}
			ends := []func(g *Group) error{
				func(g *Group) error { _, err := g.Ack(r.Ctx(), done(ids...)); return err },
				func(g *Group) error {
					for _, id := range ids {
						if _, err := g.Bury(r.Ctx(), []Burial{{Delivery{id, "1"}, "bad"}}); err != nil {
							return err
						}
					}
					_, err := Discard(r.Ctx(), g, ids, ever)
					return err
				},
				func(g *Group) error {
					if err := g.retire(r.Ctx(), RetireForced); err != nil {
						return err
					}
					_, err := g.forgetAll(r.Ctx(), noDeadline)
					return err
				},
			}
			for i, n := range rand.Perm(count) {
				for _, id := range ids {
					require.Equal(t, []byte("body "+id), r.body(id), "before the end of group %d of %d", i+1, count)
				}
				end := ends[i%len(ends)]
				require.NoError(t, end(groups[n]))
				if i%2 == 0 {
					require.NoError(t, end(groups[n]), "again")
				}
			}
			for _, k := range []script.Kind{script.Messages, script.Refs, script.MessageKeys} {
				assert.Zero(t, r.count(k, ""), k.Name())
			}
		})
	}
}

func (r *scene) body(id string) []byte {
	body, err := r.Client.HGet(r.Ctx(), r.partition.Key(script.Messages, ""), id).Bytes()
	require.NoError(r.T, err)
	return body
}
