package redisdelay

import "github.com/redisdelay/watermill-redisdelay/observe"

// publicErrors gives an observer errors as callers get them, with the types of this package.
func publicErrors(o observe.Observer) observe.Observer {
	if call := o.Published; call != nil {
		o.Published = func(e observe.Published) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Changed; call != nil {
		o.Changed = func(e observe.Changed) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Called; call != nil {
		o.Called = func(e observe.Called) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Failed; call != nil {
		o.Failed = func(e observe.Failed) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.OutageBegan; call != nil {
		o.OutageBegan = func(e observe.OutageBegan) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	return o
}
