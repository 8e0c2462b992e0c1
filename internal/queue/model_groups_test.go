package queue

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

func (m *trial) heartbeat(rt *rapid.T) {
	name, h := draw(rt, "group", trialGroups...), Heartbeat{Consumer: draw(rt, "consumer", "c", "d"), Presence: m.presence(rt)}
	m.do(func() {
		m.model.Heartbeat(m.now, name, h.Consumer, script.Milliseconds(h.Presence.Alive))
		_, err := m.group(name).Extend(m.scene.Ctx(), h, nil)
		m.must(err)
	})
}

func (m *trial) leave(rt *rapid.T) {
	name, consumer := draw(rt, "group", trialGroups...), draw(rt, "consumer", "c", "d")
	m.do(func() {
		m.model.Leave(m.now, name, consumer)
		m.must(m.group(name).Leave(m.scene.Ctx(), consumer))
	})
}

func (m *trial) pause(rt *rapid.T) {
	name, lasts := draw(rt, "group", "", "g", "h"), draw(rt, "lasts", 0, time.Second, 10*time.Second)
	m.do(func() {
		m.model.Pause(m.now, name, script.Milliseconds(lasts))
		m.must(m.group(name).changeSetting(m.scene.Ctx(), pauseScript, name, script.Milliseconds(lasts), "{}", m.real.Channel(), "follow"))
	})
}

func (m *trial) resume(rt *rapid.T) {
	name := draw(rt, "group", "", "g", "h")
	m.do(func() {
		m.model.Resume(m.now, name)
		m.must(m.group(name).changeSetting(m.scene.Ctx(), resumeScript, name, m.real.Channel(), "follow"))
	})
}

func (m *trial) limit(rt *rapid.T) {
	name := draw(rt, "group", "g", "h")
	l := Limits{MaxInFlight: rapid.IntRange(0, 4).Draw(rt, "in flight"), HaltsKeys: rapid.Bool().Draw(rt, "halts keys")}
	if l.Messages = draw(rt, "messages", 0, 0, 1, 7); l.Messages > 0 {
		l.Per, l.Burst = draw(rt, "per", 100*time.Millisecond, 3*time.Second), rapid.IntRange(1, 4).Draw(rt, "burst")
	}
	m.do(func() {
		_, err := m.real.limit(m.scene.Ctx(), name, l, 1, "")
		if !m.model.Registered(name) {
			require.ErrorIs(m.t, err, ErrGroupNotFound)
			return
		}
		m.must(err)
		m.model.Limit(m.now, name, store.Limits{
			MaxInFlight: l.MaxInFlight, Messages: l.Messages, Per: l.Per.Microseconds(), Burst: l.Burst, HaltsKeys: l.HaltsKeys,
		}, 1)
	})
}

func (m *trial) register(rt *rapid.T) {
	name, lasts := draw(rt, "group", trialGroups...), draw(rt, "lasts", 0, 5*time.Second, time.Minute, 20*time.Hour)
	m.do(func() {
		ok := lasts == 0 && m.model.Register(name) || lasts > 0 && m.model.RegisterFor(m.now, name, script.Milliseconds(lasts))
		g := m.group(name)
		g.options.Expiry = lasts
		if err := g.Register(m.scene.Ctx()); !ok {
			require.ErrorIs(m.t, err, ErrGroupRetired)
		} else {
			m.must(err)
		}
	})
}

func (m *trial) retire(rt *rapid.T) {
	name, how := draw(rt, "group", trialGroups...), draw(rt, "how", RetireIdle, RetireForced)
	m.do(func() {
		err := m.group(name).retire(m.scene.Ctx(), how)
		switch gone := m.model.Tombstone(name) != ""; {
		case !gone && !m.model.Registered(name):
			require.ErrorIs(m.t, err, ErrGroupNotFound)
		case !gone && how == RetireIdle && m.model.Alive(m.now, name):
			require.ErrorIs(m.t, err, ErrGroupAlive)
		default:
			m.must(err)
			m.model.Retire(name)
		}
	})
}

// end ends a group, as its only subscriber does on Close.
func (m *trial) end(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	m.do(func() {
		err := m.group(name).retire(m.scene.Ctx(), retireEnded)
		if m.model.Tombstone(name) == "" && !m.model.Registered(name) {
			require.ErrorIs(m.t, err, ErrGroupNotFound)
			return
		}
		m.must(err)
		m.model.End(name)
	})
}

func (m *trial) expire(rt *rapid.T) {
	name, how := draw(rt, "group", trialGroups...), draw(rt, "how", mayEnd, mayNotice)
	m.do(func() { m.same(m.model.Expire(m.now, name, how), m.scene.lookTo(how, m.group(name))) })
}

func (m *trial) forget(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	m.do(func() {
		freed, _, gone := m.model.Forget(name, forgetMessages)
		n, err := m.group(name).forget(m.scene.Ctx())
		if !gone {
			require.ErrorIs(m.t, err, errNotRetired)
			return
		}
		m.must(err)
		m.same(len(freed), n)
	})
}

func (m *trial) restore(rt *rapid.T) {
	name := draw(rt, "group", trialGroups...)
	m.do(func() {
		for m.model.Tombstone(name) == store.Retired {
			if _, freed, _ := m.model.Forget(name, forgetMessages); freed {
				m.model.Restore(name)
			}
		}
		m.must(m.group(name).restore(m.scene.Ctx()))
	})
}
