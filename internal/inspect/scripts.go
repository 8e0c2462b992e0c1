// Package inspect has the calls to Redis that only tools for operators need: counts, pages, searches, the checks and repairs
// of the doctor, bulk operations, imports, and the deletion of topics. Its scripts work on the data of package queue.
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
	locateScript    = script.New(lua, "locate").With("lib_keyed")
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

// Scripts returns all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		countsScript, pageScript, countScript, groupListScript,
		aliveScript, topicsScript, holderScript, findScript, locateScript,
		arriveScript, knownScript, orphansScript, bodilessScript, straysScript, leftoversScript,
		withdrawScript, retimeScript, turnScript, turnsScript, haltedScript, namedScript, delistScript, dropScript,
	}
}
