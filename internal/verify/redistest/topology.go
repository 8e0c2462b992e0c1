package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const slotCount = 16384

type slotRange struct{ first, last int }

// member is a server of a cluster as another server reports it.
type member struct {
	id, addr string
	master   string // the id of the master of a replica
	self     bool
	sound    bool // connected, and no server reports it as failing
	epoch    int
	slots    []slotRange
}

// view is a server's view of its cluster.
type view struct {
	server  *Server
	members []member
}

// views are the views of all servers that answer.
type views []view

func (c *Cluster) view(ctx context.Context) (views, error) {
	var seen views
	var errs []error
	for _, s := range c.servers {
		if err := s.listens(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		nodes, err := s.admin.ClusterNodes(ctx).Result()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v, err := parseView(s, nodes)
		if err != nil {
			return nil, err
		}
		seen = append(seen, v)
	}
	if len(seen) == 0 {
		return nil, errors.Join(errs...)
	}
	return seen, nil
}

func (s *Server) clusterID(ctx context.Context) (string, error) {
	return s.admin.ClusterMyID(ctx).Result()
}

func parseView(s *Server, nodes string) (view, error) {
	v := view{server: s}
	for line := range strings.Lines(nodes) {
		m, err := parseMember(line)
		if err != nil {
			return view{}, fmt.Errorf("CLUSTER NODES line %q: %w", line, err)
		}
		v.members = append(v.members, m)
	}
	if !slices.ContainsFunc(v.members, func(m member) bool { return m.self }) {
		return view{}, fmt.Errorf("CLUSTER NODES without the server itself: %q", nodes)
	}
	return v, nil
}

// parseMember reads a line of CLUSTER NODES: id, address@bus, flags, master,
// ping sent, pong received, epoch, link state, and slots.
func parseMember(line string) (member, error) {
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return member{}, errors.New("too short")
	}
	addr, _, _ := strings.Cut(fields[1], "@")
	flags := strings.Split(fields[2], ",")
	bad := slices.ContainsFunc(flags, func(flag string) bool {
		return slices.Contains([]string{"fail", "fail?", "handshake", "noaddr"}, flag)
	})
	epoch, err := strconv.Atoi(fields[6])
	m := member{
		id: fields[0], addr: addr,
		master: strings.TrimPrefix(fields[3], "-"),
		self:   slices.Contains(flags, "myself"),
		sound:  !bad && fields[7] == "connected",
		epoch:  epoch,
	}
	for _, field := range fields[8:] {
		if strings.HasPrefix(field, "[") { // a slot in migration, which still belongs to its old master
			continue
		}
		slots, parseErr := parseSlots(field)
		err = errors.Join(err, parseErr)
		m.slots = append(m.slots, slots)
	}
	return m, err
}

func parseSlots(field string) (slotRange, error) {
	first, last, found := strings.Cut(field, "-")
	if !found {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err = errors.Join(err, err2); err == nil && to >= slotCount {
		err = fmt.Errorf("slot %d", to)
	}
	return slotRange{from, to}, err
}

func (v view) self() member {
	return v.members[slices.IndexFunc(v.members, func(m member) bool { return m.self })]
}

// owners returns the master of each slot. The newest claim counts, because a master that has just
// restarted does not know that it was replaced.
func (seen views) owners() []member {
	owners := make([]member, slotCount)
	for _, v := range seen {
		for _, m := range v.members {
			for _, slots := range m.slots {
				for slot := slots.first; slot <= slots.last; slot++ {
					if owners[slot].addr == "" || m.epoch > owners[slot].epoch {
						owners[slot] = m
					}
				}
			}
		}
	}
	return owners
}

// healthy reports why the cluster cannot lose any one of its servers.
func (c *Cluster) healthy(ctx context.Context) error {
	seen, err := c.view(ctx)
	if err != nil {
		return err
	}
	if err := seen.agree(len(c.servers)); err != nil {
		return err
	}
	for _, s := range c.servers {
		info, err := s.admin.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
			return fmt.Errorf("CLUSTER INFO on %s: %s", s.Addr, info)
		}
		if err := s.replicated(ctx); err != nil {
			return err
		}
	}
	return nil
}

// agree reports why not all servers are up and see the same cluster.
func (seen views) agree(servers int) error {
	if len(seen) != servers {
		return fmt.Errorf("%d of %d servers answer", len(seen), servers)
	}
	for _, v := range seen {
		if len(v.members) != servers {
			return fmt.Errorf("%s knows %d servers", v.server.Addr, len(v.members))
		}
		for _, m := range v.members {
			if !m.sound {
				return fmt.Errorf("%s finds %s failing", v.server.Addr, m.addr)
			}
		}
		if got, want := v.layout(), seen[0].layout(); !slices.Equal(got, want) {
			return fmt.Errorf("%s sees %q, %s sees %q", v.server.Addr, got, seen[0].server.Addr, want)
		}
	}
	return nil
}

// layout lists each server's master and slots.
func (v view) layout() []string {
	var lines []string
	for _, m := range v.members {
		lines = append(lines, fmt.Sprintf("%s %s of [%s] %v", m.addr, m.id, m.master, m.slots))
	}
	slices.Sort(lines)
	return lines
}
