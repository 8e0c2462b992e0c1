package redisdelaytest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// TestALongPipelineDoesNotBlock: the doctor requests the types of all keys before it reads a reply.
func TestALongPipelineDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		publisher, err := redisdelay.NewPublisher(r.PublisherConfig(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, publisher.Close()) }()
		for i := range 60 {
			require.NoError(t, publisher.RegisterGroup(t.Context(), "topic", fmt.Sprint("group", i)))
		}
		a, err := admin.New(admin.Config{Client: r.Client()})
		require.NoError(t, err)
		require.NoError(t, a.Examine(t.Context(), func(admin.Finding) {}, nil, "topic"))
	})
}
