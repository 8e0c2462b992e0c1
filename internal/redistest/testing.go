package redistest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// shared is the server that the tests of one package have in common. It keeps
// nothing on disk; each test uses topics of its own.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs a package's tests, stops the shared server and looks for goroutines
// that are left, but for those that the options ignore. Call it from TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop redis-server:", err)
			code = 1
		}
	}
	if err := goleak.Find(options...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// Shared returns the package's server.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// New starts a server for one test.
func New(t testing.TB, options ...string) *Server {
	t.Helper()
	server, err := Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Client returns a client of the server with go-redis's default options, closed
// when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Client returns a client of the package's shared server.
func Client(t testing.TB) *redis.Client {
	t.Helper()
	return Shared(t).Client(t)
}

// Command runs any command and fails the test on an error.
func Command(t testing.TB, client redis.UniversalClient, args ...any) any {
	t.Helper()
	reply, err := client.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}
