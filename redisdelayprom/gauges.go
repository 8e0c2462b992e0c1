package redisdelayprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

var (
	redisUp        = desc("redis_up", "1 if all topics could be read the last time, else 0.")
	scrapeDuration = desc("redis_scrape_duration_seconds", "How long reading all topics took the last time.")
	scrapeErrors   = desc("redis_scrape_errors_total", "How often not all topics could be read.")

	schedulesBehind = desc("periodic_behind_schedules", "Schedules whose next ticks should have been stored more than a minute ago: no process runs them.")
	behindFor       = desc("periodic_behind_seconds", "For how long the first of these should have been; 0 if there is none.")

	dueWithin = desc("topic_due_within_messages", "Messages that no group has been given yet, and that are due already or within a time.", "topic", "within")

	inboxWaiting = desc("inbox_waiting_entries", "Entries of the inbox that nobody has stored yet.")
	inboxOldest  = desc("inbox_oldest_seconds", "For how long the first of these has waited; 0 if there is none.")
	inboxRefused = desc("inbox_refused_entries", "Entries of the inbox that are kept because they cannot be stored.")
)

// topicGauge is a gauge of each topic.
type topicGauge struct {
	desc  *prometheus.Desc
	value func(admin.TopicStats) float64
}

// groupGauge is a gauge of each group of a topic.
type groupGauge struct {
	desc  *prometheus.Desc
	value func(admin.GroupStats) float64
}

func ofTopic(name, help string, value func(admin.TopicStats) float64) topicGauge {
	return topicGauge{desc("topic_"+name, help, "topic"), value}
}

func ofGroup(name, help string, value func(admin.GroupStats) float64) groupGauge {
	return groupGauge{desc("group_"+name, help, "topic", "group"), value}
}

var topicGauges = []topicGauge{
	ofTopic("scheduled_messages", "Messages that no group has been given yet, including those that are due.",
		func(b admin.TopicStats) float64 { return float64(b.Scheduled) }),
	ofTopic("due_messages", "Messages that are due and that no group has been given yet.",
		func(b admin.TopicStats) float64 { return float64(b.Due) }),
	ofTopic("overdue_seconds", "How long the longest waiting due message has waited; what waits only for groups that are paused does not count.",
		func(b admin.TopicStats) float64 { return b.Overdue.Seconds() }),
	ofTopic("partitions", "Partitions of the topic.",
		func(b admin.TopicStats) float64 { return float64(b.Partitions) }),
	ofTopic("keys", "Message keys in use, also those of dead messages.",
		func(b admin.TopicStats) float64 { return float64(b.Keys) }),
}

var groupGauges = []groupGauge{
	ofGroup("queued_messages", "Messages already given to the group, due and waiting for a consumer; those in topic_due_messages wait for it, too.",
		func(g admin.GroupStats) float64 { return float64(g.Queued) }),
	ofGroup("in_line_messages", "Messages that are due and wait in line for their ordering keys.",
		func(g admin.GroupStats) float64 { return float64(g.InLine) }),
	ofGroup("retrying_messages", "Messages that wait for a retry, or were postponed or rescheduled.",
		func(g admin.GroupStats) float64 { return float64(g.Retrying) }),
	ofGroup("in_delivery_messages", "Messages that consumers hold.",
		func(g admin.GroupStats) float64 { return float64(g.InDelivery) }),
	ofGroup("expired_leases", "Messages in delivery whose lease has run out: the next claim takes them over.",
		func(g admin.GroupStats) float64 { return float64(g.LeaseExpired) }),
	ofGroup("dead_letters", "Dead messages.",
		func(g admin.GroupStats) float64 { return float64(g.Dead) }),
	ofGroup("halted_keys", "Ordering keys that wait for a dead message, among the newest 1,000 dead messages of each partition.",
		func(g admin.GroupStats) float64 { return float64(g.HaltedKeys) }),
	ofGroup("consumers", "Consumers that are alive.",
		func(g admin.GroupStats) float64 { return float64(g.Alive) }),
	ofGroup("paused", "1 if the group is paused, by itself or with all others, else 0.",
		func(g admin.GroupStats) float64 { return one(g.Pause != nil) }),
	ofGroup("retired", "1 if the group is retired or has expired, else 0.",
		func(g admin.GroupStats) float64 { return one(g.State != admin.GroupActive) }),
	ofGroup("overdue_seconds", "How long the longest waiting due message has waited for this group, in the topic or in its queue; "+
		"0 while the group is paused.",
		func(g admin.GroupStats) float64 { return g.Overdue.Seconds() }),
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
