package script

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzNames checks that the hash tags of two arbitrary topics end in the right place, differ if the
// topics differ, and can be read back.
func FuzzNames(f *testing.F) {
	for i, name := range awkward {
		f.Add("redisdelay", name, awkward[len(awkward)-1-i])
	}
	f.Fuzz(func(t *testing.T, prefix, one, two string) {
		if strings.ContainsAny(prefix, "{}") {
			return // Validate rejects it
		}
		tag := string(NewKeyNames(prefix, one, 0))
		require.Equal(t, byte('{'), tag[0])
		require.Equal(t, len(tag)-1, strings.IndexByte(tag, '}'))
		require.Equal(t, one == two, tag == string(NewKeyNames(prefix, two, 0)))

		topic := strings.TrimSuffix(strings.TrimPrefix(tag, "{"+prefix+":"), ":0}")
		require.NotContains(t, topic, ":")
		require.Equal(t, one, strings.NewReplacer("%25", "%", "%7D", "}", "%3A", ":").Replace(topic))
	})
}
