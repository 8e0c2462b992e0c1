package top

import (
	"cmp"
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Config says what to show.
type Config struct {
	Load     func(ctx context.Context) ([]admin.TopicStats, error)
	Interval time.Duration
	Topic    string // show its groups; "": show all topics
	Where    string // for the header, such as the address of Redis
}

// Run shows statistics until a person quits or ctx ends. A sample that fails is shown, and
// the next is tried.
func Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a sample that is under way
	m := &model{ctx: ctx, config: config, histories: map[string]*History{}, order: byOverdue}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// order is what the rows are sorted by.
type order int

const (
	byOverdue order = iota
	byWaiting
	byScheduled
	byDead
	byName
	orders
)

func (o order) String() string {
	return [...]string{"overdue", "waiting", "scheduled", "dead", "name"}[o]
}

type model struct {
	ctx    context.Context
	config Config

	at            time.Time // of the last sample
	rows          []Row
	total         Row
	histories     map[string]*History // by name; "" is the total
	err           error               // of the last sample
	order         order
	stopped       bool
	offset        int
	width, height int
}

// sample is statistics that arrive.
type sample struct {
	stats []admin.TopicStats
	err   error
}

type tick struct{}

func (m *model) Init() tea.Cmd { return m.load }

func (m *model) load() tea.Msg {
	stats, err := m.config.Load(m.ctx)
	return sample{stats, err}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case sample:
		m.take(msg, time.Now())
		return m, tea.Tick(m.config.Interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		if m.stopped {
			return m, tea.Tick(m.config.Interval, func(time.Time) tea.Msg { return tick{} })
		}
		return m, m.load
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	}
	return m, nil
}

func (m *model) press(key string) tea.Cmd {
	switch key {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "s":
		m.order = (m.order + 1) % orders
		m.sort()
	case "space", "p":
		m.stopped = !m.stopped
	case "down", "j":
		m.offset++
	case "up", "k":
		m.offset--
	case "pgdown":
		m.offset += m.room()
	case "pgup":
		m.offset -= m.room()
	}
	m.offset = max(0, min(m.offset, len(m.rows)-m.room()))
	return nil
}

// take takes a sample in.
func (m *model) take(s sample, at time.Time) {
	if m.err = s.err; s.err != nil {
		return
	}
	m.at, m.total = at, Row{}
	rows := Topics(s.stats)
	for _, row := range rows {
		m.total = sum(m.total, row)
	}
	if m.config.Topic != "" {
		rows = Groups(s.stats[0])
	}
	m.rows = rows
	m.remember("", m.total)
	seen := map[string]bool{"": true}
	for _, row := range rows {
		m.remember(row.Name, row)
		seen[row.Name] = true
	}
	for name := range m.histories {
		if !seen[name] {
			delete(m.histories, name)
		}
	}
	m.sort()
}

func (m *model) remember(name string, row Row) {
	if m.histories[name] == nil {
		m.histories[name] = &History{}
	}
	m.histories[name].Add(m.at, row)
}

func sum(a, b Row) Row {
	a.Scheduled += b.Scheduled
	a.Waiting += b.Waiting
	a.Retrying += b.Retrying
	a.InDelivery += b.InDelivery
	a.Dead += b.Dead
	a.Consumers += b.Consumers
	a.Overdue = max(a.Overdue, b.Overdue)
	return a
}

func (m *model) sort() {
	slices.SortStableFunc(m.rows, func(a, b Row) int {
		byName := cmp.Compare(a.Name, b.Name)
		switch m.order {
		case byOverdue:
			return cmp.Or(cmp.Compare(b.Overdue, a.Overdue), byName)
		case byWaiting:
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), byName)
		case byScheduled:
			return cmp.Or(cmp.Compare(b.Scheduled, a.Scheduled), byName)
		case byDead:
			return cmp.Or(cmp.Compare(b.Dead, a.Dead), byName)
		}
		return byName
	})
}
