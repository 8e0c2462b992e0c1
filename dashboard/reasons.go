package dashboard

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// reasonsData has the dead messages of a topic by reason.
type reasonsData struct {
	Topic string
	Stats *admin.TopicStats
	Rows  []reasonRow
	Total int
	All   int // all dead messages; more than Total if the time limit ended the search
	Short bool
}

type reasonRow struct {
	admin.ReasonCount
	Query string // query of the list of these dead messages; "" if their reasons have no common part to filter by
}

// reasonsPage counts the dead messages of a topic by group and reason.
func (d *Dashboard) reasonsPage(ctx context.Context, q *request) (page, error) {
	dead := admin.Query{Set: admin.Dead, Group: q.group()}
	all, err := d.config.Admin.Count(ctx, q.topic(), dead)
	if err != nil {
		return page{}, err
	}
	counts, err := d.config.Admin.Reasons(ctx, q.topic(), dead, nil)
	if err != nil && !outOfTime(ctx) {
		return page{}, err
	}
	data := reasonsData{Topic: q.topic(), Stats: d.stats(ctx, q.topic()), All: all, Short: err != nil}
	for _, c := range counts {
		row := reasonRow{ReasonCount: c}
		if common := commonPart(c.Reason); common != "" {
			f := filter{Query: admin.Query{Set: admin.Dead, Group: c.Group, Reason: common}}
			row.Query = f.values(q.topic()).Encode()
		}
		data.Rows = append(data.Rows, row)
		data.Total += c.Count
	}
	return page{Name: "reasons", Title: "Dead messages of " + q.topic(), Data: data}, nil
}

// commonPart returns the longest part that the reasons of a row have in common. An … stands for parts that differ.
func commonPart(reason string) string {
	return slices.MaxFunc(strings.Split(reason, "…"), func(a, b string) int { return len(a) - len(b) })
}

// haltedData has the halted ordering keys.
type haltedData struct {
	Rows []haltedRow
	More bool  // there may be more rows
	Err  error // why a topic could not be read
}

type haltedRow struct {
	admin.Entry
	Behind int  // messages that wait for the key
	Least  bool // Behind may be too low
}

const maxHalted = 200

// haltedPage lists the dead messages that halt ordering keys.
func (d *Dashboard) haltedPage(ctx context.Context, _ *request) (page, error) {
	o, err := d.overview(ctx)
	if err != nil {
		return page{}, err
	}
	data := haltedData{Err: o.Err}
	for _, s := range o.Topics {
		for _, g := range s.Groups {
			if g.Limits == nil || !g.Limits.HaltsKeys || g.Dead == 0 { // HaltedKeys covers only the newest dead messages
				continue
			}
			err := d.halted(ctx, &data, s.Topic, g.Group)
			gone := errors.Is(err, admin.ErrTopicNotFound) || errors.Is(err, admin.ErrGroupNotFound) // deleted since the overview was read
			if err != nil && !gone && data.Err == nil {
				data.Err = err
			}
		}
	}
	return page{Name: "halted", Title: "Halted ordering keys", Data: data}, nil
}

// halted adds the halted keys of a group.
func (d *Dashboard) halted(ctx context.Context, data *haltedData, topic, group string) error {
	behind, least, err := d.waitingByKey(ctx, topic, group)
	if err != nil {
		return err
	}
	for e, err := range d.config.Admin.HaltingMessages(ctx, topic, group) {
		switch {
		case err != nil && !outOfTime(ctx):
			return err
		case err != nil, len(data.Rows) == maxHalted:
			data.More = true
			return nil
		}
		data.Rows = append(data.Rows, haltedRow{e, behind[e.OrderingKey], least})
	}
	return nil
}

// waitingByKey counts the waiting messages of a group by ordering key. It reads at most searchMost messages.
func (d *Dashboard) waitingByKey(ctx context.Context, topic, group string) (waiting map[string]int, least bool, err error) {
	waiting = map[string]int{}
	read := 0
	for e, err := range d.config.Admin.AllEntries(ctx, topic, admin.Query{Set: admin.Waiting}) {
		switch read++; {
		case err != nil && !outOfTime(ctx):
			return nil, false, err
		case err != nil || read > searchMost:
			return waiting, true, nil
		case e.Group == group || e.Group == "": // due messages that no group has been given yet
			waiting[e.OrderingKey]++
		}
	}
	return waiting, false, nil
}
