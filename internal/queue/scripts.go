package queue

import (
	"embed"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts, with the kinds of their KEYS.
var (
	pushScript     = script.New(lua, "push", "scheduled messages publishers keys taken").Awaited()
	putScript      = script.New(lua, "put", "scheduled messages publishers").Alone().Awaited()
	unrecordScript = script.New(lua, "unrecord", "publishers")
	sweepScript    = script.New(lua, "sweep", "publishers taken arrived claims expiry")
	registerScript = script.New(lua, "register", "groups control expiry")
	raiseScript    = script.New(lua, "raise", "partitions groups control expiry")
	adoptScript    = script.New(lua, "adopt", "groups control expiry")
	enlistScript   = script.New(lua, "enlist", "topics")
	neededScript   = script.New(lua, "needed", "control taken messages").With("lib_order")

	claimScript = script.New(lua, "claim", "scheduled messages groups refs keys "+
		"queue unack attempts claims dead reasons changed control consumers full partitions expiry turns lanes").
		Behind("lib_idle").With("lib_claim", "lib_fan_out").Each("queue").Awaited()
	ackScript     = script.New(lua, "ack", "unack attempts messages refs changed keys full turns lanes queue").With("lib_finish").Awaited()
	relayScript   = script.New(lua, "relay", "unack attempts messages refs changed keys full turns lanes queue").With("lib_finish").Foreign("stream").Awaited()
	nackScript    = script.New(lua, "nack", "unack attempts queue changed dead reasons keys full turns lanes control").Awaited()
	extendScript  = script.New(lua, "extend", "unack attempts groups consumers").Awaited()
	releaseScript = script.New(lua, "release", "unack attempts queue full control").Awaited()
	buryScript    = script.New(lua, "bury", "unack attempts dead reasons keys full queue turns lanes control")

	pauseScript  = script.New(lua, "pause", "groups control")
	resumeScript = script.New(lua, "resume", "groups control")
	limitScript  = script.New(lua, "limit", "groups control partitions")
	retireScript = script.New(lua, "retire", "groups control consumers")
	forgetScript = script.New(lua, "forget", "control queue unack dead attempts reasons changed "+
		"claims consumers messages refs keys full expiry turns lanes").With("lib_finish")
	restoreScript = script.New(lua, "restore", "control queue unack dead")
	leaveScript   = script.New(lua, "leave", "consumers control expiry claims")
	expireScript  = script.New(lua, "expire", "groups control consumers expiry")

	cancelScript = script.New(lua, "cancel", "scheduled messages publishers groups refs keys taken full").With("lib_keyed").
			Each("queue unack dead attempts changed turns lanes")
	rescheduleScript = script.New(lua, "reschedule", "scheduled messages publishers groups refs keys").With("lib_keyed").
				Each("queue unack dead attempts turns lanes")

	requeueScript = script.New(lua, "requeue", "dead reasons attempts queue")
	discardScript = script.New(lua, "discard", "dead reasons attempts messages refs changed keys turns lanes queue").With("lib_finish")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		requeueScript, discardScript, pushScript, putScript, unrecordScript, sweepScript, registerScript, raiseScript,
		adoptScript, enlistScript, neededScript, claimScript, ackScript, relayScript,
		nackScript, extendScript, releaseScript, buryScript, pauseScript, resumeScript,
		limitScript, retireScript, forgetScript, restoreScript, leaveScript, expireScript,
		cancelScript, rescheduleScript,
	}
}
