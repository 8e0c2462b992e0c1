package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// revisionOf returns the revision of a schedule that is defined now, plus more.
func (r *scene) revisionOf(more int64) int64 {
	r.T.Helper()
	return r.Now().UnixMicro() + more
}

// tick stores ticks that are due some seconds from now, with ids such as "t5".
func (r *scene) tick(revision int64, seen, cursor string, seconds ...int) Ticked {
	r.T.Helper()
	result, err := r.tickOn(r.partition, revision, seen, cursor, seconds...)
	require.NoError(r.T, err)
	return result
}

func (r *scene) tickOn(p *Partition, revision int64, seen, cursor string, seconds ...int) (Ticked, error) {
	r.T.Helper()
	ticks := Ticks{Schedule: "s", Revision: revision, Seen: seen, Cursor: cursor}
	now := r.Now().Truncate(time.Second)
	for _, s := range seconds {
		at := now.Add(time.Duration(s) * time.Second)
		ticks.List = append(ticks.List, Tick{Nominal: at, Due: at, ID: fmt.Sprintf("t%d", s), Body: []byte(fmt.Sprintf("body %d", s))})
	}
	topic := &Topic{store: newStore(r.T, r.Client), name: p.Topic(), partitions: []*Partition{p}}
	reply, err := p.Client().Run(r.Ctx(), topic.TickCall(ticks))
	if err != nil {
		return Ticked{}, err
	}
	return ReadTicked(script.Answer{Reply: reply})
}

// pending returns the ids in scheduled.
func (r *scene) pending() string {
	r.T.Helper()
	return strings.Join(r.Client.ZRange(r.Ctx(), r.partition.Key(script.Scheduled, ""), 0, -1).Val(), " ")
}

func TestTicksAreStoredOnce(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	assert.True(t, r.tick(revision, "", "c1", 100, 200).Stored)
	assert.Equal(t, "t100 t200", r.pending())
	before := r.Contents(r.partition.Key(script.Ticks, ""))
	for _, seen := range []string{"", "c0"} {
		assert.False(t, r.tick(revision, seen, "c2", 300).Stored, "who has not seen the last cursor stores nothing")
	}
	assert.Equal(t, before, r.Contents(r.partition.Key(script.Ticks, "")))
	result := r.tick(revision, "c1", "c2", 300)
	assert.True(t, result.Stored)
	assert.Equal(t, "c2", result.Record.Cursor)
	assert.Len(t, result.Record.Ahead, 3)
	assert.Equal(t, "t100 t200 t300", r.pending())
	assert.True(t, r.tick(revision-1, "c2", "c3", 400).Superseded)
	assert.Equal(t, "t100 t200 t300", r.pending())
}

func TestANewRevisionReplacesPendingTicks(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	r.tick(revision, "", "c1", -5, 100, 200)
	result := r.tick(revision+1, "whatever", "d1", -6, -5, 100, 150)
	assert.True(t, result.Stored)
	assert.Equal(t, "t-5 t100 t150", r.pending(), "what has fired is not stored again")
	assert.Len(t, result.Record.Ahead, 2)
	assert.Equal(t, map[string]string{"t-5": "body -5", "t100": "body 100", "t150": "body 150"}, r.Client.HGetAll(t.Context(), r.partition.Key(script.Messages, "")).Val())
	assert.True(t, r.tick(revision+2, "", "none").Stored)
	assert.Equal(t, "t-5", r.pending())
}

func TestARevisionThatKeepsTheCursorIsStoredOnce(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	r.tick(revision, "", "c1", 100, 200)
	require.True(t, r.tick(revision+1, "", "c1", 101, 201).Stored)
	stored := func() []any {
		return []any{r.pending(), r.Contents(r.partition.Key(script.Ticks, "")), r.Contents(r.partition.Key(script.Messages, ""))}
	}
	before := stored()
	assert.False(t, r.tick(revision+1, "", "c1", 101, 201).Stored, "it has seen the record of the older revision")
	assert.Equal(t, before, stored())
}

func TestOnlyClaimedTicksCountAsFired(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	r.tick(revision, "", "c1", -5, 100, 200, 300)
	require.NoError(t, r.Client.ZRem(t.Context(), r.partition.Key(script.Scheduled, ""), "t-5", "t200").Err())
	r.tick(revision+1, "", "d1", -6, -5, 100, 200, 300)
	assert.Equal(t, "t100 t200 t300", r.pending())
}

// TestTicksContinueAfterTheClockWasAhead: the record says that later ticks have fired.
func TestTicksContinueAfterTheClockWasAhead(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	record := fmt.Sprintf("%d c1 %d", revision, r.Now().Add(24*time.Hour).UnixMilli())
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Ticks, ""), "s", record).Err())
	assert.False(t, r.tick(0, "", "").Record.Fired.After(r.Now()))
	assert.True(t, r.tick(revision+1, "", "d1", 100, 200).Stored)
	assert.Equal(t, "t100 t200", r.pending())
}

func TestATickMadeDueEarlyDoesNotLoseEarlierTicks(t *testing.T) {
	r := newScene(t)
	revision := r.revisionOf(0)
	r.tick(revision, "", "c1", -5, 100, 200, 300)
	early := redis.Z{Score: float64(r.Now().UnixMilli()), Member: "t300"}
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.Scheduled, ""), early).Err())
	result := r.tick(revision+1, "", "d1", -5, 101, 201)
	assert.Equal(t, "t-5 t300 t101 t201", r.pending())
	assert.True(t, result.Record.Fired.Before(r.Now()), result.Record.Fired)
}

// TestAQueryReturnsTheUpcomingTicks by their current due times, which operators may have changed, and changes nothing.
func TestAQueryReturnsTheUpcomingTicks(t *testing.T) {
	r := newScene(t)
	now, scheduled := r.Now().Truncate(time.Second), r.partition.Key(script.Scheduled, "")
	r.tick(r.revisionOf(0), "", "c1", -20, -10, 100, 200)
	before := r.Contents(r.partition.Key(script.Ticks, ""))
	query := func() (fired, ahead []string) {
		result := r.tick(0, "", "")
		for _, at := range result.Record.Ahead {
			ahead = append(ahead, at.Sub(now).Round(5*time.Second).String())
		}
		assert.Equal(t, before, r.Contents(r.partition.Key(script.Ticks, "")))
		return []string{result.Record.Fired.Sub(now).Round(5 * time.Second).String()}, ahead
	}
	fired, ahead := query()
	assert.Equal(t, []string{"-10s"}, fired)
	assert.Equal(t, []string{"1m40s", "3m20s"}, ahead)

	require.NoError(t, r.Client.ZAdd(t.Context(), scheduled, redis.Z{Score: float64(now.Add(time.Hour).UnixMilli()), Member: "t-10"}).Err())
	require.NoError(t, r.Client.ZRem(t.Context(), scheduled, "t200").Err())
	fired, ahead = query()
	assert.Equal(t, []string{"-20s"}, fired, "the next tick was postponed")
	assert.Equal(t, []string{"-10s", "1m40s"}, ahead, "the last one was cancelled")
}

func TestAnOldRevisionCreatesNoRecord(t *testing.T) {
	r := newScene(t)
	day := (24 * time.Hour).Microseconds()
	assert.True(t, r.tick(r.revisionOf(-day), "", "c1", 100).Lost)
	assert.Zero(t, r.Client.Exists(t.Context(), r.partition.Key(script.Ticks, ""), r.partition.Key(script.Scheduled, "")).Val())
	revision := r.revisionOf(0)
	r.tick(revision, "", "c1", 100)
	assert.True(t, r.tick(revision, "c1", RemovalCursor).Stored)
	assert.Zero(t, r.Client.Exists(t.Context(), r.partition.Key(script.Ticks, "")).Val())
}

func TestATornTickIsStoredOnce(t *testing.T) {
	var revision int64
	tornEverywhere(t, "tick", func(r *scene) {
		revision = r.revisionOf(0)
		r.tick(revision-1, "", "c0", 90, 150)
		r.tick(revision, "", "c1", 100, 200)
	}, func(r *scene) {
		again := func() {
			r.tick(revision, "", "c1", 100, 200)
			assert.Equal(r.T, "t100 t200", r.pending())
		}
		again()
		r.Reload()
		again()
	})
}
