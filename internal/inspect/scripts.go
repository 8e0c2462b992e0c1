// Package inspect asks and does what only people and the programs they use need: counts, pages and
// searches, faults and their repairs, operations on messages that were seen, imports, and the end of a topic.
// Publishers and consumers do without it. Its scripts work on what package queue keeps.
package inspect

import (
	"embed"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts.
var (
	countsScript    = script.New(lua, "counts")
	pageScript      = script.New(lua, "page")
	countScript     = script.New(lua, "count")
	groupListScript = script.New(lua, "group_list")
	aliveScript     = script.New(lua, "alive")
	topicsScript    = script.New(lua, "topics")
	holderScript    = script.New(lua, "holder")
	findScript      = script.New(lua, "find")
	lookScript      = script.New(lua, "look").With("lib_keyed")
	arriveScript    = script.New(lua, "arrive")
	knownScript     = script.New(lua, "known")
	orphansScript   = script.New(lua, "orphans")
	bodilessScript  = script.New(lua, "bodiless")
	straysScript    = script.New(lua, "strays")
	leftoversScript = script.New(lua, "leftovers")
	withdrawScript  = script.New(lua, "withdraw")
	retimeScript    = script.New(lua, "retime")
	turnScript      = script.New(lua, "turn")
	turnsScript     = script.New(lua, "turns")
	haltedScript    = script.New(lua, "halted")
	namedScript     = script.New(lua, "named")
	delistScript    = script.New(lua, "delist")
	dropScript      = script.New(lua, "drop")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		countsScript, pageScript, countScript, groupListScript,
		aliveScript, topicsScript, holderScript, findScript, lookScript,
		arriveScript, knownScript, orphansScript, bodilessScript, straysScript, leftoversScript,
		withdrawScript, retimeScript, turnScript, turnsScript, haltedScript, namedScript, delistScript, dropScript,
	}
}
