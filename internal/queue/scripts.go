package queue

import "embed"

//go:embed lua/*.lua
var lua embed.FS

// The scripts, with the kinds of their KEYS.
var (
	pushScript     = New(lua, "push", Scheduled, Messages, Publishers, MessageKeys, Taken).Awaited()
	putScript      = New(lua, "put", Scheduled, Messages, Publishers).Alone().Awaited()
	unrecordScript = New(lua, "unrecord", Publishers)
	sweepScript    = New(lua, "sweep", Publishers, Taken, Arrived, ClaimsOf)
	registerScript = New(lua, "register", Groups, Control, Expiries)
	raiseScript    = New(lua, "raise", PartitionCount, Groups, Control, Expiries)
	adoptScript    = New(lua, "adopt", Groups, Control, Expiries)
	enlistScript   = New(lua, "enlist", Topics)
	neededScript   = New(lua, "needed", Control, Taken)

	claimScript = New(lua, "claim", Scheduled, Messages, Groups, Refs, MessageKeys,
		QueueOf, UnackOf, AttemptsOf, ClaimsOf, DeadOf, ReasonsOf, ChangedOf, Control, ConsumersOf, Full, PartitionCount, Expiries).
		Behind("lib_idle").With("lib_claim", "lib_fan_out").Each(QueueOf).Awaited()
	ackScript     = New(lua, "ack", UnackOf, AttemptsOf, Messages, Refs, ChangedOf, MessageKeys, Full).Awaited()
	relayScript   = New(lua, "relay", UnackOf, AttemptsOf, Messages, Refs, ChangedOf, MessageKeys, Full).Foreign("stream").Awaited()
	nackScript    = New(lua, "nack", UnackOf, AttemptsOf, QueueOf, ChangedOf, DeadOf, ReasonsOf, MessageKeys, Full).Awaited()
	extendScript  = New(lua, "extend", UnackOf, AttemptsOf, Groups, ConsumersOf).Awaited()
	releaseScript = New(lua, "release", UnackOf, AttemptsOf, QueueOf, Full, Control).Awaited()
	buryScript    = New(lua, "bury", UnackOf, AttemptsOf, DeadOf, ReasonsOf, MessageKeys, Full, QueueOf)

	pauseScript  = New(lua, "pause", Groups, Control)
	resumeScript = New(lua, "resume", Groups, Control)
	limitScript  = New(lua, "limit", Groups, Control, PartitionCount)
	retireScript = New(lua, "retire", Groups, Control, ConsumersOf)
	forgetScript = New(lua, "forget", Control, QueueOf, UnackOf, DeadOf, AttemptsOf, ReasonsOf, ChangedOf,
		ClaimsOf, ConsumersOf, Messages, Refs, MessageKeys, Full, Expiries)
	restoreScript  = New(lua, "restore", Control, QueueOf, UnackOf, DeadOf)
	backlogScript  = New(lua, "backlog", Scheduled, QueueOf, UnackOf)
	leaveScript    = New(lua, "leave", ConsumersOf, Control, Expiries, ClaimsOf)
	expireScript   = New(lua, "expire", Groups, Control, ConsumersOf, Expiries)
	expiringScript = New(lua, "expiring", Expiries)

	pageScript = New(lua, "page", Scheduled, QueueOf, UnackOf, DeadOf, AttemptsOf, ReasonsOf, Messages, ChangedOf)

	countScript  = New(lua, "count", Scheduled, QueueOf, UnackOf, DeadOf)
	rosterScript = New(lua, "roster", Groups, Control)
	surveyScript = New(lua, "survey", Scheduled, Messages, MessageKeys, Taken, Moving)
	tallyScript  = New(lua, "tally", QueueOf, UnackOf, DeadOf)
	aliveScript  = New(lua, "alive", ConsumersOf)
	gaugeScript  = New(lua, "gauge", Scheduled, MessageKeys, Moving).Each(QueueOf, UnackOf, DeadOf, ConsumersOf)
	topicsScript = New(lua, "topics", Topics)
	holderScript = New(lua, "holder", ClaimsOf)
	findScript   = New(lua, "find", Messages)
	lookScript   = New(lua, "look", Scheduled, Messages, Groups, Refs, MessageKeys, Moving).With("lib_keyed").
			Each(QueueOf, UnackOf, DeadOf, AttemptsOf, ReasonsOf, ChangedOf)

	departScript   = New(lua, "depart", Moving, Publishers, Messages, Refs, MessageKeys, Scheduled, QueueOf, DeadOf)
	movingScript   = New(lua, "moving", Moving)
	carryScript    = New(lua, "carry", Moving, Messages, ChangedOf, Scheduled, QueueOf, DeadOf)
	arriveScript   = New(lua, "arrive", Scheduled, Messages, MessageKeys, Taken, Moving, Arrived)
	departedScript = New(lua, "departed", Moving, Publishers, Scheduled, Messages, Refs, MessageKeys, Control, Arrived,
		QueueOf, DeadOf, AttemptsOf, ReasonsOf, ChangedOf)

	orphansScript  = New(lua, "orphans", Messages, Groups, Refs, Scheduled, Moving).Each(QueueOf, UnackOf, DeadOf)
	bodilessScript = New(lua, "bodiless", Messages, Scheduled, QueueOf, UnackOf, DeadOf, Moving)
	straysScript   = New(lua, "strays", MessageKeys, Messages)

	leftoversScript = New(lua, "leftovers", Messages, Refs, Moving, QueueOf, UnackOf, DeadOf, AttemptsOf, ReasonsOf, ChangedOf)

	requeueScript = New(lua, "requeue", DeadOf, ReasonsOf, AttemptsOf, QueueOf)
	discardScript = New(lua, "discard", DeadOf, ReasonsOf, AttemptsOf, Messages, Refs, ChangedOf, MessageKeys)

	cancelScript = New(lua, "cancel", Scheduled, Messages, Publishers, Groups, Refs, MessageKeys, Taken, Full, Moving).With("lib_keyed").
			Each(QueueOf, UnackOf, DeadOf, AttemptsOf, ChangedOf)
	rescheduleScript = New(lua, "reschedule", Scheduled, Messages, Publishers, Groups, Refs, MessageKeys, Moving).With("lib_keyed").
				Each(QueueOf, UnackOf, DeadOf, AttemptsOf)

	withdrawScript = New(lua, "withdraw", Scheduled, Messages, MessageKeys, Taken)
	retimeScript   = New(lua, "retime", Scheduled, QueueOf)
	namedScript    = New(lua, "named", Refs)
	delistScript   = New(lua, "delist", Topics)
	dropScript     = New(lua, "drop", Scheduled, Messages, Groups, Refs, MessageKeys, Taken, Publishers, Control, Full,
		PartitionCount, Expiries, Moving, Arrived).Each(QueueOf, UnackOf, AttemptsOf, ClaimsOf, DeadOf, ReasonsOf, ChangedOf, ConsumersOf)
)

// Scripts are all scripts.
func Scripts() []*Script {
	return []*Script{
		pushScript, putScript, unrecordScript, sweepScript, registerScript, raiseScript,
		adoptScript, enlistScript, neededScript, claimScript, ackScript, relayScript,
		nackScript, extendScript, releaseScript, buryScript, pauseScript, resumeScript,
		limitScript, retireScript, forgetScript, restoreScript, backlogScript, leaveScript,
		expireScript, expiringScript, pageScript, countScript, rosterScript, surveyScript,
		tallyScript, aliveScript, gaugeScript, topicsScript, holderScript, findScript,
		lookScript, departScript, movingScript, carryScript, arriveScript, departedScript,
		orphansScript, bodilessScript, straysScript, leftoversScript, requeueScript, discardScript,
		cancelScript, rescheduleScript, withdrawScript, retimeScript, namedScript, delistScript,
		dropScript,
	}
}
