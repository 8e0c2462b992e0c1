// Package inspect asks and does what only people and the programs they use need: counts, pages and
// searches, faults and what mends them, acts on messages that were seen, copies, and the end of a topic.
// Publishers and consumers do without it. Its scripts work on what package queue keeps.
package inspect

import (
	"embed"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts, with the kinds of their KEYS.
var (
	countsScript = script.New(lua, "counts", "scheduled messages keys taken").Each("queue unack dead consumers")
	pageScript   = script.New(lua, "page", "scheduled queue unack dead attempts reasons messages changed")
	countScript  = script.New(lua, "count", "scheduled queue unack dead")
	rosterScript = script.New(lua, "roster", "groups control")
	aliveScript  = script.New(lua, "alive", "consumers")
	topicsScript = script.New(lua, "topics", "topics")
	holderScript = script.New(lua, "holder", "claims")
	findScript   = script.New(lua, "find", "messages")
	lookScript   = script.New(lua, "look", "scheduled messages groups refs keys").With("lib_keyed").
			Each("queue unack dead attempts reasons changed")
	arriveScript    = script.New(lua, "arrive", "scheduled messages keys taken arrived")
	orphansScript   = script.New(lua, "orphans", "messages groups refs scheduled").Each("queue unack dead")
	bodilessScript  = script.New(lua, "bodiless", "messages scheduled queue unack dead")
	straysScript    = script.New(lua, "strays", "keys messages")
	leftoversScript = script.New(lua, "leftovers", "messages refs queue unack dead attempts reasons changed")
	withdrawScript  = script.New(lua, "withdraw", "scheduled messages keys taken refs arrived queue dead attempts reasons changed turns lanes").
			With("lib_finish")
	retimeScript = script.New(lua, "retime", "scheduled queue attempts turns lanes")
	turnScript   = script.New(lua, "turn", "turns lanes")
	turnsScript  = script.New(lua, "turns", "turns queue unack dead control")
	haltedScript = script.New(lua, "halted", "dead turns")
	namedScript  = script.New(lua, "named", "refs")
	delistScript = script.New(lua, "delist", "topics")
	dropScript   = script.New(lua, "drop", "scheduled messages groups refs keys taken publishers control full partitions expiry arrived").Each("queue unack attempts claims dead reasons changed consumers turns lanes")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		countsScript, pageScript, countScript, rosterScript,
		aliveScript, topicsScript, holderScript, findScript, lookScript,
		arriveScript, orphansScript, bodilessScript, straysScript, leftoversScript,
		withdrawScript, retimeScript, turnScript, turnsScript, haltedScript, namedScript, delistScript, dropScript,
	}
}
