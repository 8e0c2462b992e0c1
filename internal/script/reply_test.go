package script

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsOfADownClusterAreTransient(t *testing.T) {
	assert.True(t, Transient(NotStoredError("ERR Script attempted to execute a write command while the cluster is down and readonly")))
	assert.False(t, Transient(NotStoredError("ERR Script attempted to access a non local key in a cluster node")))
}

func TestAReplyIsReadValueByValue(t *testing.T) {
	r := ReplyOf("word", int64(7), "1500", "2.9e3", "", nil, []any{"a", "b"}, []any{int64(1), int64(2)}, []any{"k", "v"}, "x", "y")
	assert.True(t, r.Begins("word"))
	assert.Equal(t, "word", r.Text())
	assert.False(t, r.Begins("word"))
	assert.Equal(t, 7, r.Count())
	assert.Equal(t, time.UnixMilli(1500), r.Time())
	assert.Equal(t, time.UnixMilli(2900), r.Score())
	assert.Zero(t, r.Score())
	assert.Nil(t, r.Bytes())
	assert.Equal(t, []string{"a", "b"}, r.Texts())
	assert.Equal(t, []int{1, 2}, r.Counts())
	assert.Equal(t, [][2]string{{"k", "v"}}, r.Pairs())
	assert.Equal(t, []string{"x"}, r.First(1))
	assert.Equal(t, []string{"y"}, r.Rest())
	require.NoError(t, r.End())
}

// TestAMalformedReplyIsAPermanentError because a repeated attempt cannot read it either.
func TestAMalformedReplyIsAPermanentError(t *testing.T) {
	list := func(read func(list *Reply)) func(r *Reply) {
		return func(r *Reply) {
			list := r.List()
			read(&list)
		}
	}
	for name, c := range map[string]struct {
		reply Reply
		read  func(r *Reply)
	}{
		"a number instead of a text":     {ReplyOf(int64(1)), func(r *Reply) { r.Text() }},
		"a text instead of a number":     {ReplyOf("1"), func(r *Reply) { r.Count() }},
		"a text instead of a list":       {ReplyOf("1"), func(r *Reply) { r.Texts() }},
		"no time":                        {ReplyOf("soon"), func(r *Reply) { r.Time() }},
		"no score":                       {ReplyOf("high"), func(r *Reply) { r.Score() }},
		"a missing value":                {ReplyOf(), func(r *Reply) { r.Text() }},
		"an extra value":                 {ReplyOf("a", "b"), func(r *Reply) { r.Text() }},
		"a pair without its second":      {ReplyOf([]any{"a", "b", "c"}), func(r *Reply) { r.Pairs() }},
		"fewer than asked for":           {ReplyOf("a"), func(r *Reply) { r.First(2) }},
		"a negative number of values":    {ReplyOf(), func(r *Reply) { r.First(-1) }},
		"a number in a list of texts":    {ReplyOf([]any{int64(1)}), func(r *Reply) { r.Texts() }},
		"a text in a list of numbers":    {ReplyOf([]any{"1"}), func(r *Reply) { r.Counts() }},
		"a wrong value in a list":        {ReplyOf([]any{"1"}), list(func(list *Reply) { list.Count() })},
		"a wrong value in a nested list": {ReplyOf([]any{[]any{"1"}}), list(func(list *Reply) { inner := list.List(); inner.Count() })},
	} {
		t.Run(name, func(t *testing.T) {
			c.read(&c.reply)
			err := c.reply.End()
			require.ErrorIs(t, err, ErrReply)
			assert.False(t, Transient(err))
			assert.False(t, c.reply.More())
		})
	}
}

func TestTheFirstErrorOfAReplyIsKept(t *testing.T) {
	r := ReplyOf("a", int64(1), []any{"b"})
	r.Count()
	list := r.List()
	assert.False(t, list.More())
	assert.ErrorContains(t, r.End(), `"a"`)
}
