package queue

import (
	"embed"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts.
var (
	pushScript          = script.New(lua, "push").Awaited()
	putScript           = script.New(lua, "put").WithoutLibraries().Awaited()
	tickScript          = script.New(lua, "tick")
	outcomeScript       = script.New(lua, "outcome").Awaited()
	deleteRecordsScript = script.New(lua, "delete_records")
	sweepScript         = script.New(lua, "sweep")
	registerScript      = script.New(lua, "register")
	raiseScript         = script.New(lua, "raise")
	adoptScript         = script.New(lua, "adopt")
	enlistScript        = script.New(lua, "enlist")

	claimScript   = script.New(lua, "claim").Prepend("lib_idle").With("lib_claim", "lib_claim_order", "lib_fan_out", "lib_claim_again").Awaited()
	ackScript     = script.New(lua, "ack").With("lib_finish").Awaited()
	relayScript   = script.New(lua, "relay").With("lib_finish").Awaited()
	nackScript    = script.New(lua, "nack").Awaited()
	extendScript  = script.New(lua, "extend").Awaited()
	releaseScript = script.New(lua, "release").Awaited()
	buryScript    = script.New(lua, "bury")

	// buryHeldScript is buryScript for consumers, whose calls must not wait behind calls that hang. Scripts omits it because it is
	// the same.
	buryHeldScript = script.New(lua, "bury").Awaited()

	pauseScript   = script.New(lua, "pause")
	resumeScript  = script.New(lua, "resume")
	limitScript   = script.New(lua, "limit")
	retireScript  = script.New(lua, "retire")
	forgetScript  = script.New(lua, "forget").With("lib_finish")
	restoreScript = script.New(lua, "restore")
	leaveScript   = script.New(lua, "leave")
	expireScript  = script.New(lua, "expire")

	cancelScript     = script.New(lua, "cancel").With("lib_keyed")
	rescheduleScript = script.New(lua, "reschedule").With("lib_keyed")

	requeueScript = script.New(lua, "requeue")
	discardScript = script.New(lua, "discard").With("lib_finish")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		requeueScript, discardScript, pushScript, putScript, tickScript, outcomeScript, deleteRecordsScript, sweepScript, registerScript,
		raiseScript, adoptScript, enlistScript, claimScript, ackScript, relayScript,
		nackScript, extendScript, releaseScript, buryScript, pauseScript, resumeScript,
		limitScript, retireScript, forgetScript, restoreScript, leaveScript, expireScript,
		cancelScript, rescheduleScript,
	}
}
