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
	countsScript            = script.New(lua, "counts")
	pageScript              = script.New(lua, "page")
	countRangeScript        = script.New(lua, "count_range")
	groupListScript         = script.New(lua, "group_list")
	consumersScript         = script.New(lua, "consumers")
	topicsScript            = script.New(lua, "topics")
	holderScript            = script.New(lua, "holder")
	findScript              = script.New(lua, "find")
	locateScript            = script.New(lua, "locate").With("lib_keyed")
	importScript            = script.New(lua, "import")
	findImportedScript      = script.New(lua, "find_imported")
	orphansScript           = script.New(lua, "orphans")
	misplacedScript         = script.New(lua, "misplaced")
	straysScript            = script.New(lua, "strays")
	leftoversScript         = script.New(lua, "leftovers")
	cancelScheduledScript   = script.New(lua, "cancel_scheduled")
	rescheduleWaitingScript = script.New(lua, "reschedule_waiting")
	turnScript              = script.New(lua, "turn")
	turnsScript             = script.New(lua, "turns")
	haltedScript            = script.New(lua, "halted")
	groupsInRefsScript      = script.New(lua, "groups_in_refs")
	delistScript            = script.New(lua, "delist")
	dropScript              = script.New(lua, "drop")
)

// Scripts returns all scripts.
func Scripts() []*script.Script {
	return []*script.Script{
		countsScript, pageScript, countRangeScript, groupListScript,
		consumersScript, topicsScript, holderScript, findScript, locateScript,
		importScript, findImportedScript, orphansScript, misplacedScript, straysScript, leftoversScript,
		cancelScheduledScript, rescheduleWaitingScript, turnScript, turnsScript, haltedScript, groupsInRefsScript, delistScript, dropScript,
	}
}
