package queue

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lib.lua
var libSource string

//go:embed push.lua
var pushSource string

//go:embed claim.lua
var claimSource string

//go:embed ack.lua
var ackSource string

//go:embed nack.lua
var nackSource string

//go:embed extend.lua
var extendSource string

//go:embed release.lua
var releaseSource string

//go:embed bury.lua
var burySource string

//go:embed cancel.lua
var cancelSource string

//go:embed reschedule.lua
var rescheduleSource string

//go:embed requeue.lua
var requeueSource string

//go:embed discard.lua
var discardSource string

var (
	pushScript       = redis.NewScript(libSource + pushSource)
	claimScript      = redis.NewScript(libSource + claimSource)
	ackScript        = redis.NewScript(libSource + ackSource)
	nackScript       = redis.NewScript(libSource + nackSource)
	extendScript     = redis.NewScript(libSource + extendSource)
	releaseScript    = redis.NewScript(libSource + releaseSource)
	buryScript       = redis.NewScript(libSource + burySource)
	cancelScript     = redis.NewScript(libSource + cancelSource)
	rescheduleScript = redis.NewScript(libSource + rescheduleSource)
	requeueScript    = redis.NewScript(libSource + requeueSource)
	discardScript    = redis.NewScript(libSource + discardSource)
)
