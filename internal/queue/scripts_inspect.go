package queue

import (
	"embed"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var inspectLua embed.FS

// The scripts, with the kinds of their KEYS.
var (
	backlogScript = script.New(inspectLua, "backlog", "scheduled queue unack")
	pageScript    = script.New(inspectLua, "page", "scheduled queue unack dead attempts reasons messages changed")
	countScript   = script.New(inspectLua, "count", "scheduled queue unack dead")
	rosterScript  = script.New(inspectLua, "roster", "groups control")
	surveyScript  = script.New(inspectLua, "survey", "scheduled messages keys taken")
	tallyScript   = script.New(inspectLua, "tally", "queue unack dead")
	aliveScript   = script.New(inspectLua, "alive", "consumers")
	gaugeScript   = script.New(inspectLua, "gauge", "scheduled keys").Each("queue unack dead consumers")
	topicsScript  = script.New(inspectLua, "topics", "topics")
	holderScript  = script.New(inspectLua, "holder", "claims")
	findScript    = script.New(inspectLua, "find", "messages")
	lookScript    = script.New(inspectLua, "look", "scheduled messages groups refs keys").With("lib_keyed").
			Each("queue unack dead attempts reasons changed")
	arriveScript    = script.New(inspectLua, "arrive", "scheduled messages keys taken arrived")
	orphansScript   = script.New(inspectLua, "orphans", "messages groups refs scheduled").Each("queue unack dead")
	bodilessScript  = script.New(inspectLua, "bodiless", "messages scheduled queue unack dead")
	straysScript    = script.New(inspectLua, "strays", "keys messages")
	leftoversScript = script.New(inspectLua, "leftovers", "messages refs queue unack dead attempts reasons changed")
	withdrawScript  = script.New(inspectLua, "withdraw", "scheduled messages keys taken refs arrived queue dead attempts reasons changed").
			With("lib_finish")
	retimeScript = script.New(inspectLua, "retime", "scheduled queue")
	namedScript  = script.New(inspectLua, "named", "refs")
	delistScript = script.New(inspectLua, "delist", "topics")
	dropScript   = script.New(inspectLua, "drop", "scheduled messages groups refs keys taken publishers control full partitions expiry arrived").Each("queue unack attempts claims dead reasons changed consumers")
)

// InspectScripts are all scripts.
func InspectScripts() []*script.Script {
	return []*script.Script{
		backlogScript, pageScript, countScript, rosterScript, surveyScript, tallyScript,
		aliveScript, gaugeScript, topicsScript, holderScript, findScript, lookScript,
		arriveScript, orphansScript, bodilessScript, straysScript, leftoversScript,
		withdrawScript, retimeScript, namedScript, delistScript, dropScript,
	}
}
