package connect

import (
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIPv6AddressesAreParsed(t *testing.T) {
	for url, where := range map[string]string{
		"::1":                     "[::1]:6379",
		"[::1]:7000":              "[::1]:7000",
		"redis://::1":             "[::1]:6379",
		"rediss://eve:pw@fe80::1": "[fe80::1]:6379",
		"valkey://::1/0":          "[::1]:6379",
		"localhost:7000":          "localhost:7000",
	} {
		_, hosts, err := Target{URL: url}.parse()
		require.NoError(t, err, url)
		assert.Equal(t, []string{where}, hosts, url)
	}
}

// TestUnreachableClusterAddressesAreExplained, as when only one port of the Cluster is forwarded.
func TestUnreachableClusterAddressesAreExplained(t *testing.T) {
	refused := func(addr string) error {
		at, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		return &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED}
	}
	options := &redis.UniversalOptions{Addrs: []string{"localhost:7000"}, IsClusterMode: true}
	require.ErrorContains(t, explain(refused("10.0.0.7:6379"), options),
		"its Cluster announces the address 10.0.0.7:6379, which cannot be reached from here (connection refused")
	require.ErrorContains(t, explain(refused("127.0.0.1:7000"), options), ": connection refused: nothing listens there")
}
