package admin

import (
	"context"
	"fmt"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// obstacle says what keeps a group from a message that is due; "" if nothing is known to.
func (e *explainer) obstacle(ctx context.Context, group string) (string, error) {
	if tombstone, retired := e.roster.Retired[group]; retired {
		if tombstone.Expired {
			return fmt.Sprintf("group %s has ended without a consumer, and what it holds is being freed", group), nil
		}
		return fmt.Sprintf("group %s is retired since %s", group, e.clock(tombstone.Since)), nil
	}
	if p := pauseOf(e.roster, group); p != nil {
		return e.paused(group, p), nil
	}
	consumers, err := inspect.Consumers(ctx, e.partition.Group(group))
	if err != nil {
		return "", err
	}
	if len(consumers) == 0 {
		return fmt.Sprintf("no consumer of group %s is alive", group), nil
	}
	share, limited := e.roster.Limits[group]
	if !limited {
		return "", nil
	}
	return e.limited(ctx, group, share)
}

// paused says who has paused a group, since when, until when and why.
func (e *explainer) paused(group string, p *Pause) string {
	text := "group " + group + " is paused"
	if p.All {
		text = "all groups are paused"
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if !p.Since.IsZero() {
		text += " since " + e.clock(p.Since)
	}
	if p.Until.IsZero() {
		text += " until somebody resumes"
	} else {
		text += " until " + e.clock(p.Until)
	}
	if p.Reason != "" {
		text += fmt.Sprintf(": %q", p.Reason)
	}
	return text
}

// limited says which limit of a group is reached in the message's partition; "" for none.
func (e *explainer) limited(ctx context.Context, group string, share inspect.Share) (string, error) {
	if share.NextClaim().After(e.roster.Now) {
		per := humanize.Duration(share.Whole.Per)
		if share.Whole.Per.Seconds() == 1 {
			per = "s"
		}
		return fmt.Sprintf("the limit of %d/%s of group %s is reached", share.Whole.Messages, per, group), nil
	}
	if share.Most == 0 {
		return "", nil
	}
	tally, err := inspect.ReadTally(ctx, e.partition.Group(group))
	if err != nil || tally.InDelivery < share.Most {
		return "", err
	}
	text := fmt.Sprintf("the limit of %d in flight of group %s is reached", share.Whole.MaxInFlight, group)
	if share.Most < share.Whole.MaxInFlight {
		text += fmt.Sprintf(" (%d in its partition)", share.Most)
	}
	return text, nil
}
