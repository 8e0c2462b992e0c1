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

//go:embed register.lua
var registerSource string

//go:embed letters.lua
var lettersSource string

//go:embed raise.lua
var raiseSource string

var (
	pushScript       = newScript(pushSource)
	claimScript      = newScript(claimSource)
	ackScript        = newScript(ackSource)
	nackScript       = newScript(nackSource)
	extendScript     = newScript(extendSource)
	releaseScript    = newScript(releaseSource)
	buryScript       = newScript(burySource)
	cancelScript     = newScript(cancelSource)
	rescheduleScript = newScript(rescheduleSource)
	requeueScript    = newScript(requeueSource)
	discardScript    = newScript(discardSource)
	registerScript   = newScript(registerSource)
	lettersScript    = newScript(lettersSource)
	raiseScript      = newScript(raiseSource)
)

// script is a script in the form for any Redis, and in the one for a Cluster, where
// a notification stays on the nodes of its slot.
type script struct{ plain, sharded *redis.Script }

func newScript(source string) script {
	return script{
		plain:   redis.NewScript("local NOTIFY = 'PUBLISH'\n" + libSource + source),
		sharded: redis.NewScript("local NOTIFY = 'SPUBLISH'\n" + libSource + source),
	}
}
