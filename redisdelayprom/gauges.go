package redisdelayprom

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// gauge is a metric of what is in Redis.
type gauge struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	series func(r *reading, show show)
}

// show shows a series, with the values of its labels.
type show func(value float64, labels ...string)

// gauges are all metrics of a Collector.
var gauges = []gauge{
	ofReading("redis_up", "1 if all topics could be read the last time, else 0.",
		func(r *reading) (float64, bool) { return one(r.err == nil), true }),
	ofReading("redis_scrape_duration_seconds", "How long reading all topics took the last time.",
		func(r *reading) (float64, bool) { return r.took.Seconds(), true }),
	{
		desc("redis_scrape_errors_total", "How often not all topics could be read."),
		prometheus.CounterValue, func(r *reading, show show) { show(float64(r.failures)) },
	},

	ofReading("periodic_behind_schedules", "Schedules whose next ticks should have been stored more than a minute ago: no process runs them.",
		func(r *reading) (float64, bool) { return float64(r.behind), r.noSchedules == nil }),
	ofReading("periodic_behind_seconds", "For how long the first of these should have been; 0 if there is none.",
		func(r *reading) (float64, bool) { return r.behindFor.Seconds(), r.noSchedules == nil }),
	ofReading("inbox_waiting_entries", "Entries of the inbox that nobody has stored yet.",
		func(r *reading) (float64, bool) { return float64(r.inbox.Waiting), r.noInbox == nil }),
	ofReading("inbox_oldest_seconds", "For how long the first of these has waited; 0 if there is none.",
		func(r *reading) (float64, bool) { return r.inbox.Oldest.Seconds(), r.noInbox == nil }),
	ofReading("inbox_rejected_entries", "Entries of the inbox that are kept because they cannot be stored.",
		func(r *reading) (float64, bool) { return float64(r.inbox.Rejected), r.noInbox == nil }),

	{
		desc("topic_due_within_messages", "Messages that no group has been given yet, and that are due already or within a time.", "topic", "within"),
		prometheus.GaugeValue, func(r *reading, show show) {
			for topic, t := range r.topics {
				for i, messages := range t.DueWithin {
					show(float64(messages), topic, model.Duration(r.dueWithin[i]).String())
				}
			}
		},
	},
	ofTopics("scheduled_messages", "Messages that no group has been given yet, including those that are due.",
		func(t *admin.TopicStats) float64 { return float64(t.Scheduled) }),
	ofTopics("due_messages", "Messages that are due and that no group has been given yet.",
		func(t *admin.TopicStats) float64 { return float64(t.Due) }),
	ofTopics("overdue_seconds", "How long the longest waiting due message has waited; what waits only for groups that are paused does not count.",
		func(t *admin.TopicStats) float64 { return t.Overdue.Seconds() }),
	ofTopics("partitions", "Partitions of the topic.",
		func(t *admin.TopicStats) float64 { return float64(t.Partitions) }),
	ofTopics("keys", "Message keys in use, also those of dead messages.",
		func(t *admin.TopicStats) float64 { return float64(t.Keys) }),

	ofGroups("ready_messages", "Messages already given to the group, due and waiting for a consumer; those in topic_due_messages wait for it, too.",
		func(g *admin.GroupStats) float64 { return float64(g.Ready) }),
	ofGroups("in_line_messages", "Messages that are due and wait in line for their ordering keys.",
		func(g *admin.GroupStats) float64 { return float64(g.InLine) }),
	ofGroups("postponed_messages", "Messages that wait for a retry, or were postponed or rescheduled.",
		func(g *admin.GroupStats) float64 { return float64(g.Postponed) }),
	ofGroups("in_delivery_messages", "Messages that consumers hold.",
		func(g *admin.GroupStats) float64 { return float64(g.InDelivery) }),
	ofGroups("expired_leases", "Messages in delivery whose lease has run out: the next claim takes them over.",
		func(g *admin.GroupStats) float64 { return float64(g.LeaseExpired) }),
	ofGroups("dead_messages", "Dead messages.",
		func(g *admin.GroupStats) float64 { return float64(g.Dead) }),
	ofGroups("halted_keys", "Ordering keys that wait for a dead message, among the newest 1,000 dead messages of each partition.",
		func(g *admin.GroupStats) float64 { return float64(g.HaltedKeys) }),
	ofGroups("consumers", "Consumers that are alive.",
		func(g *admin.GroupStats) float64 { return float64(g.LiveConsumers) }),
	ofGroups("paused", "1 if the group is paused, by itself or with all others, else 0.",
		func(g *admin.GroupStats) float64 { return one(g.Pause != nil) }),
	ofGroups("retired", "1 if the group is retired or has expired, else 0.",
		func(g *admin.GroupStats) float64 { return one(g.State != admin.GroupActive) }),
	ofGroups("overdue_seconds", "How long the longest waiting due message has waited for this group, in the topic or in its queue; "+
		"0 while the group is paused.",
		func(g *admin.GroupStats) float64 { return g.Overdue.Seconds() }),
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// ofReading is a gauge without labels. It has no series if its part of Redis could not be read.
func ofReading(name, help string, value func(*reading) (value float64, read bool)) gauge {
	return gauge{desc(name, help), prometheus.GaugeValue, func(r *reading, show show) {
		if v, read := value(r); read {
			show(v)
		}
	}}
}

func ofTopics(name, help string, value func(*admin.TopicStats) float64) gauge {
	return gauge{desc("topic_"+name, help, "topic"), prometheus.GaugeValue, func(r *reading, show show) {
		for topic, t := range r.topics {
			show(value(t), topic)
		}
	}}
}

func ofGroups(name, help string, value func(*admin.GroupStats) float64) gauge {
	return gauge{desc("group_"+name, help, "topic", "group"), prometheus.GaugeValue, func(r *reading, show show) {
		for at, g := range r.groups {
			show(value(g), at[0], at[1])
		}
	}}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
