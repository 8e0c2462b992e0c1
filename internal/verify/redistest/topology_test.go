package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMemberReadsALineOfClusterNodes(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		want member
	}{
		"master": {
			"a 127.0.0.1:1@2 myself,master - 0 0 3 connected 0-5 7 9-10",
			member{id: "a", addr: "127.0.0.1:1", self: true, sound: true, epoch: 3, slots: []slotRange{{0, 5}, {7, 7}, {9, 10}}},
		},
		"slot in migration": {
			"a 127.0.0.1:1@2 master - 0 0 3 connected 5 [5->-b] [6-<-b]",
			member{id: "a", addr: "127.0.0.1:1", sound: true, epoch: 3, slots: []slotRange{{5, 5}}},
		},
		"replica": {
			"b 127.0.0.1:3@4,host slave a 0 0 3 connected",
			member{id: "b", addr: "127.0.0.1:3", master: "a", sound: true, epoch: 3},
		},
		"perhaps failing": {"b :3@4 slave,fail? a 0 0 3 connected", member{id: "b", addr: ":3", master: "a", epoch: 3}},
		"disconnected":    {"b :3@4 slave a 0 0 3 disconnected", member{id: "b", addr: ":3", master: "a", epoch: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMember(test.line)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseMemberRejectsMalformedLines(t *testing.T) {
	for _, line := range []string{
		"", "a :1@2 master - 0 0 3", "a :1@2 master - 0 0 x connected",
		"a :1@2 master - 0 0 3 connected 5-x", "a :1@2 master - 0 0 3 connected 16384",
	} {
		_, err := parseMember(line)
		require.Error(t, err, line)
	}
}
