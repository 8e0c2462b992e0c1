package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// GroupList has the groups of a partition, with their settings.
type GroupList struct {
	Now      time.Time
	Groups   []string // the registered groups, sorted
	Pauses   map[string]PauseInForce
	Limits   map[string]Share
	Retired  map[string]Tombstone
	Expiring map[string]time.Time     // the earliest time at which the group expires without a consumer
	Expiry   map[string]time.Duration // GroupExpiry of such a group
}

// PauseInForce is a pause that has not ended. The pause of all groups has the name "".
type PauseInForce struct {
	Since, Until time.Time // Until is zero for no end
	By, Reason   string
}

// Share is a partition's share of a group's limits.
type Share struct {
	Whole       queue.Limits
	MaxInFlight int           // messages in delivery; 0: any number
	Interval    time.Duration // from one claim to the next; 0: any rate
	Burst       int
	Back        time.Time // when the whole burst is available; zero: now
}

// NextClaim returns when the rate allows another claim, which may be in the past.
func (s Share) NextClaim() time.Time {
	if s.Interval == 0 || s.Back.IsZero() {
		return time.Time{}
	}
	return s.Back.Add(-time.Duration(s.Burst-1) * s.Interval)
}

// Tombstone is the record of a retired or expired group.
type Tombstone struct {
	Since   time.Time
	Expired bool // it has expired, and its messages are being freed
}

// lately returns up to a number of groups, those that were retired last.
func (g GroupList) lately(count int) []string {
	names := slices.SortedFunc(maps.Keys(g.Retired), func(a, b string) int {
		return g.Retired[b].Since.Compare(g.Retired[a].Since)
	})
	return names[:min(len(names), max(0, count))]
}

// All returns the names of all groups, sorted, including retired ones.
func (g GroupList) All() []string {
	names := append(slices.Collect(maps.Keys(g.Retired)), g.Groups...)
	slices.Sort(names)
	return slices.Compact(names)
}

// ReadGroupList reads the group list of the partition.
func ReadGroupList(ctx context.Context, p *queue.Partition) (GroupList, error) {
	page := newGroupListPage()
	for cursor := "0"; ; {
		reply, err := p.Client().Run(ctx, groupListCall(p, cursor))
		if err != nil {
			return GroupList{}, err
		}
		if cursor, err = page.add(reply); err != nil {
			return GroupList{}, err
		}
		if cursor == "0" {
			return page.groupList, page.read()
		}
	}
}

func groupListCall(p *queue.Partition, cursor string) script.Call {
	return p.Call(groupListScript, p.Keys(groupListScript, ""), []any{cursor})
}

// groupListPage has the pages of a group list that were read.
type groupListPage struct {
	groupList GroupList
	fields    map[string]string // the fields of control
}

func newGroupListPage() *groupListPage {
	return &groupListPage{
		groupList: GroupList{
			Pauses: map[string]PauseInForce{}, Limits: map[string]Share{},
			Retired: map[string]Tombstone{}, Expiring: map[string]time.Time{}, Expiry: map[string]time.Duration{},
		},
		fields: map[string]string{},
	}
}

// add adds a reply, and returns the cursor for the next call.
func (g *groupListPage) add(reply script.Reply) (cursor string, err error) {
	g.groupList.Now, cursor = reply.Time(), reply.Text()
	g.groupList.Groups = append(g.groupList.Groups, reply.Texts()...)
	for _, field := range reply.Pairs() {
		g.fields[field[0]] = field[1]
	}
	return cursor, reply.End()
}

// read decodes the added replies.
func (g *groupListPage) read() error {
	slices.Sort(g.groupList.Groups)
	return g.groupList.read(g.fields)
}

// read decodes the fields of control.
func (g *GroupList) read(fields map[string]string) error {
	for field, value := range fields {
		kind, group, _ := strings.Cut(field, ":")
		var err error
		switch kind {
		case "paused":
			err = g.readPause(group, value)
		case "limits":
			g.Limits[group], err = shareOf(value, fields["rate:"+group])
		case "retired":
			since, how, _ := strings.Cut(value, " ")
			g.Retired[group] = Tombstone{Since: msTime(since), Expired: how == "expired"}
		case "expiry":
			if parts := strings.Fields(value); len(parts) == 3 {
				g.Expiring[group] = msTime(parts[1])
				lasts, _ := strconv.ParseInt(parts[0], 10, 64) // 0 if it is damaged
				g.Expiry[group] = time.Duration(lasts) * time.Millisecond
			}
		}
		if err != nil {
			return fmt.Errorf("settings field %q: %w", field, err)
		}
	}
	return nil
}

func (g *GroupList) readPause(group, value string) error {
	parts := strings.SplitN(value, " ", 3)
	if len(parts) != 3 {
		return fmt.Errorf("%w: %q", script.ErrReply, value)
	}
	var request queue.Pause
	if err := json.Unmarshal([]byte(parts[2]), &request); err != nil {
		return fmt.Errorf("%w: %q", script.ErrReply, value)
	}
	pause := PauseInForce{Until: msTime(parts[0]), Since: msTime(parts[1]), By: request.By, Reason: request.Reason}
	if pause.Until.IsZero() || pause.Until.After(g.Now) {
		g.Pauses[group] = pause
	}
	return nil
}

// shareOf reads the fields "limits:G" and "rate:G"; lib_claim.lua explains them.
func shareOf(limits, rate string) (Share, error) {
	whole, err := queue.ParseLimits(limits)
	if err != nil {
		return Share{}, err
	}
	parts := strings.SplitN(limits, " ", 4)
	inFlight, err := strconv.Atoi(parts[0])
	interval, err2 := strconv.ParseFloat(parts[1], 64)
	burst, err3 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || err3 != nil {
		return Share{}, fmt.Errorf("%w: %q", script.ErrReply, limits)
	}
	share := Share{Whole: whole, MaxInFlight: inFlight, Interval: time.Duration(interval * 1000), Burst: burst}
	if us, err := strconv.ParseInt(rate, 10, 64); err == nil {
		share.Back = time.UnixMicro(us)
	}
	return share, nil
}

// msTime decodes a time in ms; zero for 0 or a damaged time.
func msTime(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
