package queue

import (
	"os"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// ofInspect is a script of package inspect, which imports this one.
func ofInspect(name string) *script.Script {
	return script.New(os.DirFS("../inspect"), name)
}

// arrived stores a copy of a message that is due in a minute.
func (r *scene) arrived(id string) {
	r.T.Helper()
	arrive := ofInspect("arrive")
	now := r.Now().UnixMilli()
	reply, err := r.partition.Run(r.Ctx(), arrive, "", []any{
		now + 60_000, 86_400_000, r.partition.Channel(), "", id, now + 60_000, "body " + id,
	})
	require.NoError(r.T, err)
	reply.Time()
	require.Equal(r.T, []string{"", "stored"}, reply.Rest())
}
