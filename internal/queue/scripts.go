package queue

import (
	"embed"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// The scripts, with the kinds of their KEYS.
var (
	pushScript     = newScript("push", scheduled, messages, publishers, messageKeys, taken)
	putScript      = newScript("put", scheduled, messages, publishers)
	unrecordScript = newScript("unrecord", publishers)
	sweepScript    = newScript("sweep", publishers, taken, arrived, claimsOf)
	registerScript = newScript("register", groups, control, expiry)
	raiseScript    = newScript("raise", count, groups, control, expiry)
	adoptScript    = newScript("adopt", groups, control, expiry)
	enlistScript   = newScript("enlist", topics)
	neededScript   = newScript("needed", control, taken)

	claimScript = newScript("claim", scheduled, messages, groups, refs, messageKeys,
		queueOf, unackOf, attemptsOf, claimsOf, deadOf, reasonsOf, changedOf, control, consumersOf, full, count, expiry).each(queueOf)
	ackScript     = newScript("ack", unackOf, attemptsOf, messages, refs, changedOf, messageKeys, full)
	relayScript   = newScript("relay", unackOf, attemptsOf, messages, refs, changedOf, messageKeys, full).and("stream")
	nackScript    = newScript("nack", unackOf, attemptsOf, queueOf, changedOf, deadOf, reasonsOf, messageKeys, full)
	extendScript  = newScript("extend", unackOf, attemptsOf, groups, consumersOf)
	releaseScript = newScript("release", unackOf, attemptsOf, queueOf, full, control)
	buryScript    = newScript("bury", unackOf, attemptsOf, deadOf, reasonsOf, messageKeys, full, queueOf)

	pauseScript  = newScript("pause", groups, control)
	resumeScript = newScript("resume", groups, control)
	limitScript  = newScript("limit", groups, control, count)
	retireScript = newScript("retire", groups, control, consumersOf)
	forgetScript = newScript("forget", control, queueOf, unackOf, deadOf, attemptsOf, reasonsOf, changedOf,
		claimsOf, consumersOf, messages, refs, messageKeys, full, expiry)
	restoreScript  = newScript("restore", control, queueOf, unackOf, deadOf)
	backlogScript  = newScript("backlog", scheduled, queueOf, unackOf)
	leaveScript    = newScript("leave", consumersOf, control, expiry, claimsOf)
	expireScript   = newScript("expire", groups, control, consumersOf, expiry)
	expiringScript = newScript("expiring", expiry)

	pageScript = newScript("page", scheduled, queueOf, unackOf, deadOf, attemptsOf, reasonsOf, messages, changedOf)

	countScript  = newScript("count", scheduled, queueOf, unackOf, deadOf)
	rosterScript = newScript("roster", groups, control)
	surveyScript = newScript("survey", scheduled, messages, messageKeys, taken)
	tallyScript  = newScript("tally", queueOf, unackOf, deadOf)
	aliveScript  = newScript("alive", consumersOf)
	gaugeScript  = newScript("gauge", scheduled, messageKeys).each(queueOf, unackOf, deadOf, consumersOf)
	topicsScript = newScript("topics", topics)
	holderScript = newScript("holder", claimsOf)
	findScript   = newScript("find", messages)
	lookScript   = newScript("look", scheduled, messages, groups, refs, messageKeys).
			each(queueOf, unackOf, deadOf, attemptsOf, reasonsOf, changedOf)

	arriveScript = newScript("arrive", scheduled, messages, messageKeys, taken, arrived)

	orphansScript  = newScript("orphans", messages, groups, refs, scheduled).each(queueOf, unackOf, deadOf)
	bodilessScript = newScript("bodiless", messages, scheduled, queueOf, unackOf, deadOf)
	straysScript   = newScript("strays", messageKeys, messages)

	leftoversScript = newScript("leftovers", messages, refs, queueOf, unackOf, deadOf, attemptsOf, reasonsOf, changedOf)

	requeueScript = newScript("requeue", deadOf, reasonsOf, attemptsOf, queueOf)
	discardScript = newScript("discard", deadOf, reasonsOf, attemptsOf, messages, refs, changedOf, messageKeys)

	cancelScript = newScript("cancel", scheduled, messages, publishers, groups, refs, messageKeys, taken, full).
			each(queueOf, unackOf, deadOf, attemptsOf, changedOf)
	rescheduleScript = newScript("reschedule", scheduled, messages, publishers, groups, refs, messageKeys).
				each(queueOf, unackOf, deadOf, attemptsOf)

	withdrawScript = newScript("withdraw", scheduled, messages, messageKeys, taken, refs, arrived,
		queueOf, deadOf, attemptsOf, reasonsOf, changedOf)
	retimeScript = newScript("retime", scheduled, queueOf)
	namedScript  = newScript("named", refs)
	delistScript = newScript("delist", topics)
	dropScript   = newScript("drop", scheduled, messages, groups, refs, messageKeys, taken, publishers, control, full,
		count, expiry, arrived).each(queueOf, unackOf, attemptsOf, claimsOf, deadOf, reasonsOf, changedOf, consumersOf)
)

// awaited are the scripts of which script.awaited says more.
var awaited = []string{"push", "put", "claim", "ack", "relay", "nack", "extend", "release"}

// script is a script with the kinds of its KEYS: first those of the partition and of one
// group, then those that are repeated for each of several groups. Keys of others may follow,
// whose names in the script are those of their types. It has a plain form, and
// one for a Cluster, where a notification stays on the nodes of its slot.
type script struct {
	name           string
	once, many     []kind
	beyond         []string
	plain, sharded *redis.Script

	// awaited says that its callers have goroutines for it, and give those up at the end of a
	// context: they publish and consume, where a goroutine for each call would cost too much.
	awaited bool
}

func newScript(name string, once ...kind) *script {
	source := ""
	for _, library := range librariesOf(name, once) {
		source += sourceOf(library)
	}
	source += sourceOf(name)
	if name == "claim" {
		source = sourceOf(idleLibrary) + source
	}
	return &script{
		name: name, once: once,
		plain:   redis.NewScript("local NOTIFY = 'PUBLISH'\n" + source),
		sharded: redis.NewScript("local NOTIFY = 'SPUBLISH'\n" + source),
		awaited: slices.Contains(awaited, name),
	}
}

// idleLibrary answers claims that find nothing before any other library is loaded.
const idleLibrary = "lib_idle"

// allLibraries are what scripts share, in the order in which they build on each other.
var allLibraries = []string{"lib", "lib_refs", "lib_groups", "lib_expiry", "lib_claim", "lib_fan_out", "lib_finish", "lib_keyed"}

// librariesOf are the libraries in front of a script with these KEYS. It does without those
// that it does not need: each function of a library takes time in each call.
func librariesOf(name string, once []kind) []string {
	if name == "put" {
		return nil
	}
	libraries := []string{"lib"}
	if slices.Contains(once, refs) {
		libraries = append(libraries, "lib_refs")
	}
	if slices.ContainsFunc(once, func(k kind) bool { return k == groups || k == control || k == consumersOf }) {
		libraries = append(libraries, "lib_groups")
	}
	if slices.Contains(once, expiry) {
		libraries = append(libraries, "lib_expiry")
	}
	switch name {
	case "claim":
		libraries = append(libraries, "lib_claim", "lib_fan_out")
	case "ack", "relay", "discard", "forget", "withdraw":
		libraries = append(libraries, "lib_finish")
	case "cancel", "reschedule", "look":
		libraries = append(libraries, "lib_keyed")
	}
	return libraries
}

func (s *script) each(many ...kind) *script {
	s.many = many
	return s
}

func (s *script) and(beyond ...string) *script {
	s.beyond = beyond
	return s
}

func sourceOf(name string) string {
	source, err := sources.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the file was missing at build time
	}
	return string(source)
}

// keys are the KEYS of the script in a partition, for one group and then for each of
// several groups.
func (s *script) keys(n names, group string, each []string) []string {
	keys := make([]string, 0, len(s.once)+len(s.many)*len(each))
	for _, k := range s.once {
		keys = append(keys, n.keyOf(k, group))
	}
	for _, g := range each {
		for _, k := range s.many {
			keys = append(keys, n.keyOf(k, g))
		}
	}
	return keys
}

// holds is the type of the value at KEYS[i+1].
func (s *script) holds(i int) string {
	if i < len(s.once) {
		return kinds[s.once[i]].holds
	}
	if len(s.many) == 0 {
		return s.beyond[i-len(s.once)]
	}
	return kinds[s.many[(i-len(s.once))%len(s.many)]].holds
}
