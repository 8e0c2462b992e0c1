package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// maxUnsure is how long a topic without the group is not looked at again, at most. It
	// doubles from the first look.
	maxUnsure = 30 * time.Second

	// checksPerLook limits how many topics one look asks for their groups.
	checksPerLook = 100
)

// others are the topics that do not have the group, or cannot be read, and when to look at
// them again.
type others map[string]other

type other struct {
	next   time.Time
	pause  time.Duration
	broken bool // it could not be read
}

// discover starts a relay for each topic that has the group, until ctx ends. Each look costs
// Redis one call while nothing is new, for up to about 1,000 topics.
func (r *Relay) discover(ctx context.Context, start func(topic string)) {
	started, unsure := map[string]bool{}, others{}
	outages, everywhere := outage.New(logging(r.logger), 0), observe.Place{Partition: -1}
	ticker := time.NewTicker(r.config.DiscoveryInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		found, err := r.look(ctx, started, unsure)
		for _, topic := range found {
			started[topic] = true
			start(topic)
		}
		switch {
		case err == nil:
			outages.Worked(discovering, everywhere)
		case ctx.Err() == nil:
			outages.Failed(discovering, everywhere, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// look returns topics that have the group and are not started.
func (r *Relay) look(ctx context.Context, started map[string]bool, unsure others) (found []string, err error) {
	listed, err := inspect.Topics(ctx, r.store)
	if err != nil {
		return nil, err
	}
	now, exists := time.Now(), map[string]bool{}
	var open []string
	for _, topic := range listed {
		exists[topic.Name] = true
		if !started[topic.Name] && !now.Before(unsure[topic.Name].next) {
			open = append(open, topic.Name)
		}
	}
	maps.DeleteFunc(unsure, func(topic string, _ other) bool { return !exists[topic] })
	slices.SortStableFunc(open, func(a, b string) int { return unsure[a].next.Compare(unsure[b].next) })
	for _, topic := range open[:min(len(open), checksPerLook)] {
		groupList, err := inspect.ReadGroupList(ctx, r.store.Topic(topic).Partition(0))
		if err == nil && slices.Contains(groupList.Groups, r.config.ConsumerGroup) {
			found = append(found, topic)
			delete(unsure, topic)
			continue
		}
		broken := err != nil && ctx.Err() == nil && !script.Transient(err)
		if broken && !unsure[topic].broken {
			r.logger.Error("Could not read a topic; looking at it again later", err, watermill.LogFields{"topic": topic})
		}
		pause := max(unsure[topic].pause, r.config.DiscoveryInterval/2)
		unsure[topic] = other{next: now.Add(pause), pause: min(2*pause, maxUnsure), broken: broken}
		if err != nil && !broken {
			return found, err // the next look begins with other topics
		}
	}
	return found, nil
}
