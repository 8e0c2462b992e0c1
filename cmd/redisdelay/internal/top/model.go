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

	// Describe returns lines about a group, for one that is opened.
	Describe func(admin.GroupStats) []string
}

// Run shows statistics until a person quits or ctx ends. A sample that fails is shown, and
// the next is tried.
func Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a sample that is under way
	m := newModel(ctx, config)
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

	at            time.Time          // of the last sample
	stats         []admin.TopicStats // the last sample
	histories     map[name]*History  // of topics, and of the groups of an open one
	err           error              // of the last sample
	topic, group  string             // what is open; "": none
	rows          []Row              // on the screen
	total         Row                // of them
	chosen        int                // the row that Enter opens
	offset        int                // the first row on the screen
	order         order
	stopped       bool
	helping       bool
	width, height int
}

// name names a row: of a topic, of a group, or of the total if it is empty.
type name struct{ topic, group string }

func newModel(ctx context.Context, config Config) *model {
	return &model{ctx: ctx, config: config, topic: config.Topic, histories: map[name]*History{}, order: byOverdue}
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
	if m.helping {
		m.helping = false
		if key != "ctrl+c" {
			return nil
		}
	}
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc", "backspace", "left", "h":
		if !m.out() && key == "esc" {
			return tea.Quit
		}
	case "enter", "right", "l":
		m.in()
	case "?":
		m.helping = true
	case "s":
		m.order = (m.order + 1) % orders
		m.sort()
	case "space", "p":
		m.stopped = !m.stopped
	default:
		m.move(key)
	}
	return nil
}

// move moves the choice, and the rows if it would leave the screen.
func (m *model) move(key string) {
	switch key {
	case "down", "j":
		m.chosen++
	case "up", "k":
		m.chosen--
	case "pgdown":
		m.chosen += m.room()
	case "pgup":
		m.chosen -= m.room()
	case "home", "g":
		m.chosen = 0
	case "end", "G":
		m.chosen = len(m.rows) - 1
	}
	m.chosen = max(0, min(m.chosen, len(m.rows)-1))
	m.offset = min(max(m.offset, m.chosen-m.room()+1), m.chosen)
	m.offset = max(0, min(m.offset, len(m.rows)-m.room()))
}

// in opens the chosen topic or group.
func (m *model) in() {
	switch {
	case m.group != "" || m.chosen >= len(m.rows):
		return
	case m.topic == "":
		m.topic = m.rows[m.chosen].Name
	default:
		m.group = m.rows[m.chosen].Name
	}
	m.turn("")
}

// out goes back to where Enter was pressed; false if it was not.
func (m *model) out() bool {
	left := ""
	switch {
	case m.group != "":
		left, m.group = m.group, ""
	case m.topic != m.config.Topic:
		left, m.topic = m.topic, m.config.Topic
	default:
		return false
	}
	m.turn(left)
	return true
}

// turn shows other rows, of which one is chosen by its name.
func (m *model) turn(chosen string) {
	m.chosen, m.offset = 0, 0
	m.show(chosen)
}

// take takes a sample in.
func (m *model) take(s sample, at time.Time) {
	if m.err = s.err; s.err != nil && len(s.stats) == 0 {
		return
	}
	m.at, m.stats = at, s.stats
	seen := map[name]bool{}
	remember := func(n name, row Row) {
		if m.histories[n] == nil {
			m.histories[n] = &History{}
		}
		m.histories[n].Add(m.at, row)
		seen[n] = true
	}
	var all Row
	for _, s := range m.stats {
		row := Total(s)
		all = sum(all, row)
		remember(name{topic: s.Topic}, row)
		if s.Topic == m.topic {
			for _, row := range Groups(s) {
				remember(name{s.Topic, row.Name}, row)
			}
		}
	}
	remember(name{}, all)
	for n := range m.histories {
		if !seen[n] {
			delete(m.histories, n)
		}
	}
	chosen := ""
	if m.chosen > 0 && m.chosen < len(m.rows) {
		chosen = m.rows[m.chosen].Name
	}
	m.show(chosen)
}

// show makes the rows of the last sample. The choice stays with a name, or at its place for "".
func (m *model) show(chosen string) {
	m.rows, m.total = Topics(m.stats), Row{}
	for _, row := range m.rows {
		m.total = sum(m.total, row)
	}
	if m.topic != "" {
		m.rows, m.total = nil, Row{}
	}
	for _, s := range m.stats {
		if m.topic != "" && s.Topic == m.topic {
			m.rows, m.total = Groups(s), Total(s)
		}
	}
	if m.group != "" {
		m.rows = slices.DeleteFunc(m.rows, func(row Row) bool { return row.Name != m.group })
	}
	m.sort()
	for i, row := range m.rows {
		if row.Name == chosen {
			m.chosen = i
		}
	}
	m.move("")
}

// opened is the group that is open, as it was at the last sample; nil if it is gone.
func (m *model) opened() *admin.GroupStats {
	for _, s := range m.stats {
		for i, g := range s.Groups {
			if s.Topic == m.topic && g.Group == m.group {
				return &s.Groups[i]
			}
		}
	}
	return nil
}

// history is that of a row on the screen; that of the total for the name "".
func (m *model) history(row string) *History {
	n := name{topic: row}
	if m.topic != "" {
		n = name{m.topic, row}
	}
	if h := m.histories[n]; h != nil {
		return h
	}
	return &History{} // it was opened after the last sample
}

func sum(a, b Row) Row {
	a.Add(b.Counts)
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
			return cmp.Or(cmp.Compare(b.Waiting(), a.Waiting()), byName)
		case byScheduled:
			return cmp.Or(cmp.Compare(b.Scheduled, a.Scheduled), byName)
		case byDead:
			return cmp.Or(cmp.Compare(b.Dead, a.Dead), byName)
		}
		return byName
	})
}
