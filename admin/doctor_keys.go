package admin

import (
	"context"
	"errors"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// keyFaults collects keys that another program has overwritten or set to expire. A key that is added twice counts once.
type keyFaults struct {
	wrong    tally            // keys of a wrong type
	volatile tally            // keys that expire
	known    map[string]error // the errors of keys of a wrong type
}

// add adds keys. Fix removes the expiry of keys.
func (k *keyFaults) add(ctx context.Context, d diagnosis, faults inspect.KeyFaults) error {
	for _, w := range faults.Types {
		if k.known[w.Key] != nil {
			continue
		}
		if k.known == nil {
			k.known = map[string]error{}
		}
		k.wrong.note(w.Error())
		k.known[w.Key] = w
	}
	k.volatile.add(faults.Volatile)
	if d.fix {
		return inspect.Persist(ctx, d.admin.store.Client, faults.Volatile)
	}
	return nil
}

// unlessKnown drops an error about a key of a wrong type, which has its own Finding.
func (k *keyFaults) unlessKnown(err error) error {
	var wrong *script.WrongTypeError
	if errors.As(err, &wrong) && k.known[wrong.Key] != nil {
		return nil
	}
	return err
}

// reportKeys reports the keys of a topic or, for "", of the prefix.
func (d diagnosis) reportKeys(k *keyFaults, topic string) {
	if k.wrong.count > 0 {
		d.report(SeverityProblem, CheckTypes, topic, "%s the wrong type, so calls that need it fail: %s. Another program has "+
			"overwritten the key and its data are lost; delete it", humanize.Count(k.wrong.count, "key has", "keys have"), k.wrong.list())
	}
	if k.volatile.count > 0 {
		d.reportFixable(SeverityProblem, CheckVolatile, topic, "%s: %s. Another program has called EXPIRE; the data will be lost",
			humanize.Count(k.volatile.count, "key expires", "keys expire"), k.volatile.list())
	}
}

// prefixKeys checks the keys that belong to no topic. It returns an error if the list of topics has a wrong type.
func (d diagnosis) prefixKeys(ctx context.Context) (*keyFaults, error) {
	faults, err := inspect.FindPrefixKeyFaults(ctx, d.admin.store.Client)
	if err != nil {
		return nil, err
	}
	var k keyFaults
	if err := k.add(ctx, d, faults); err != nil {
		return nil, err
	}
	d.reportKeys(&k, "")
	return &k, k.known[d.admin.store.Registry()]
}

// unlisted reports topics that have keys and are not on the list. Fix lists them again and returns them.
func (d diagnosis) unlisted(ctx context.Context, list []string) ([]string, error) {
	names, err := inspect.Unlisted(ctx, d.admin.store.Client, list)
	if errors.Is(err, inspect.ErrCannotScan) {
		d.report(SeverityInfo, CheckUnlisted, "", "it is not known whether topics are missing from the list of topics: %v", err)
		return nil, nil
	}
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var missing tally
	missing.add(names)
	if d.fix {
		for _, name := range names {
			d.admin.store.ForgetListing(name) // so that EnsureListed asks Redis
			if err := d.admin.store.Topic(name).EnsureListed(ctx); err != nil {
				return nil, err
			}
		}
	}
	d.reportFixable(SeverityWarning, CheckUnlisted, "", "%s not on the list of topics: %s. A process that uses such a topic adds it again",
		humanize.Count(missing.count, "topic has keys and is", "topics have keys and are"), missing.list())
	if !d.fix {
		return nil, nil
	}
	return names, nil
}
