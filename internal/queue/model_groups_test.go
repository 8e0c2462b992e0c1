package queue

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

func (t *trial) heartbeat(rt *rapid.T) {
	name, h := draw(rt, "group", trialGroups...), Heartbeat{Consumer: draw(rt, "consumer", "c", "d"), Presence: t.presence(rt)}
	t.do(func() {
		t.model.Heartbeat(t.now, name, h.Consumer, script.Milliseconds(h.Presence.Alive))
		_, err := t.group(name).Extend(t.scene.Ctx(), h, nil)
		t.must(err)
	})
}

func (t *trial) leave(rt *rapid.T) {
	name, consumer := draw(rt, "group", trialGroups...), draw(rt, "consumer", "c", "d")
	t.do(func() {
		t.model.Leave(t.now, name, consumer)
		t.must(t.group(name).Leave(t.scene.Ctx(), consumer))
	})
}

func (t *trial) pause(rt *rapid.T) {
	name, lasts := draw(rt, "group", "", "g", "h"), draw(rt, "lasts", 0, time.Second, 10*time.Second)
	t.do(func() {
		t.model.Pause(t.now, name, script.Milliseconds(lasts))
		t.must(t.group(name).changeSetting(t.scene.Ctx(), pauseScript, name, script.Milliseconds(lasts), "{}", t.real.Channel(), "follow"))
	})
}

func (t *trial) resume(rt *rapid.T) {
	name := draw(rt, "group", "", "g", "h")
	t.do(func() {
		t.model.Resume(t.now, name)
		t.must(t.group(name).changeSetting(t.scene.Ctx(), resumeScript, name, t.real.Channel(), "follow"))
	})
}

func (t *trial) limit(rt *rapid.T) {
	name := draw(rt, "group", "g", "h")
	l := Limits{MaxInFlight: rapid.IntRange(0, 4).Draw(rt, "in flight"), HaltsKeys: rapid.Bool().Draw(rt, "halts keys")}
	if l.Messages = draw(rt, "messages", 0, 0, 1, 7); l.Messages > 0 {
		l.Per, l.Burst = draw(rt, "per", 100*time.Millisecond, 3*time.Second), rapid.IntRange(1, 4).Draw(rt, "burst")
	}
	t.do(func() {
		_, err := t.real.limit(t.scene.Ctx(), name, l, 1, "")
		if !t.model.Registered(name) {
			require.ErrorIs(t.t, err, ErrGroupNotFound)
			return
		}
		t.must(err)
		t.model.Limit(t.now, name, store.Limits{
			MaxInFlight: l.MaxInFlight, Messages: l.Messages, Per: l.Per.Microseconds(), Burst: l.Burst, HaltsKeys: l.HaltsKeys,
		}, 1)
	})
}

func (t *trial) register(rt *rapid.T) {
	name, lasts := draw(rt, "group", trialGroups...), draw(rt, "lasts", 0, 5*time.Second, time.Minute, 20*time.Hour)
	t.do(func() {
		ok := lasts == 0 && t.model.Register(name) || lasts > 0 && t.model.RegisterFor(t.now, name, script.Milliseconds(lasts))
		g := t.group(name)
		g.options.Expiry = lasts
		if err := g.Register(t.scene.Ctx()); !ok {
			require.ErrorIs(t.t, err, ErrGroupRetired)
		} else {
			t.must(err)
		}
	})
}

func (t *trial) retire(rt *rapid.T) {
	name, how := draw(rt, "group", trialGroups...), draw(rt, "how", RetireIdle, RetireForced)
	t.do(func() {
		err := t.group(name).retire(t.scene.Ctx(), how)
		switch gone := t.model.Tombstone(name) != ""; {
		case !gone && !t.model.Registered(name):
			require.ErrorIs(t.t, err, ErrGroupNotFound)
		case !gone && how == RetireIdle && t.model.Alive(t.now, name):
			require.ErrorIs(t.t, err, ErrGroupAlive)
		default:
			t.must(err)
			t.model.Retire(name)
		}
	})
}

// end ends a group, as its only subscriber does on Close.
func (t *trial) end(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	t.do(func() {
		err := t.group(name).retire(t.scene.Ctx(), retireEnded)
		if t.model.Tombstone(name) == "" && !t.model.Registered(name) {
			require.ErrorIs(t.t, err, ErrGroupNotFound)
			return
		}
		t.must(err)
		t.model.End(name)
	})
}

func (t *trial) expire(rt *rapid.T) {
	name, how := draw(rt, "group", trialGroups...), draw(rt, "how", mayEnd, mayNotice)
	t.do(func() { t.same(t.model.Expire(t.now, name, how), t.scene.checkExpiryAs(how, t.group(name))) })
}

func (t *trial) forget(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	t.do(func() {
		freed, _, gone := t.model.Forget(name, forgetMessages)
		n, err := t.group(name).forget(t.scene.Ctx())
		if !gone {
			require.ErrorIs(t.t, err, errNotRetired)
			return
		}
		t.must(err)
		t.same(len(freed), n)
	})
}

func (t *trial) restore(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	t.do(func() {
		for t.model.Tombstone(name) == store.Retired {
			if _, freed, _ := t.model.Forget(name, forgetMessages); freed {
				t.model.Restore(name)
			}
		}
		t.must(t.group(name).restore(t.scene.Ctx()))
	})
}
