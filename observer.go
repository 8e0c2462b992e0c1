package redisdelay

import "github.com/redisdelay/watermill-redisdelay/observe"

// publicly gives an observer errors as callers get them, with the types of this package.
func publicly(o observe.Observer) observe.Observer {
	if tell := o.Published; tell != nil {
		o.Published = func(e observe.Published) {
			e.Err = public(e.Err)
			tell(e)
		}
	}
	if tell := o.Changed; tell != nil {
		o.Changed = func(e observe.Changed) {
			e.Err = public(e.Err)
			tell(e)
		}
	}
	if tell := o.Called; tell != nil {
		o.Called = func(e observe.Called) {
			e.Err = public(e.Err)
			tell(e)
		}
	}
	if tell := o.Failed; tell != nil {
		o.Failed = func(e observe.Failed) {
			e.Err = public(e.Err)
			tell(e)
		}
	}
	if tell := o.OutageBegan; tell != nil {
		o.OutageBegan = func(e observe.OutageBegan) {
			e.Err = public(e.Err)
			tell(e)
		}
	}
	return o
}
