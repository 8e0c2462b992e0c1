package redistest

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// The servers that the tests of one package share. They have no persistence; each test uses its own
// topics.
var (
	shared         perPackage[*Server]
	sharedCluster  perPackage[*Cluster]
	sharedSentinel perPackage[*Sentinel]
)

// stopper is a server or a group of servers.
type stopper interface{ Stop() error }

// perPackage is a server that starts when a test first needs it. Main stops it.
type perPackage[T stopper] struct {
	once    sync.Once
	started T
	err     error
}

func (c *perPackage[T]) get(t testing.TB, start func(options ...string) (T, error)) T {
	t.Helper()
	c.once.Do(func() { c.started, c.err = start() })
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c.started
}

func (c *perPackage[T]) stop() error {
	unused := false
	c.once.Do(func() { unused = true })
	if unused || c.err != nil {
		return nil
	}
	return c.started.Stop()
}

// Main runs a package's tests, stops the shared servers and checks for leaked goroutines, except
// those that the options ignore. Call it from TestMain.
func Main(m *testing.M, options ...goleak.Option) { os.Exit(Run(m, options...)) }

// Run is Main for a TestMain that does more afterwards. It returns the exit code.
func Run(m *testing.M, options ...goleak.Option) int {
	runInParallel(8)
	code := m.Run()
	for _, stop := range []func() error{shared.stop, sharedCluster.stop, sharedSentinel.stop} {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop redis-server:", err)
			code = 1
		}
	}
	err := goleak.Find(options...)
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find(options...) // a closed pool of go-redis sees it after a second, if its server was gone
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	return code
}

// runInParallel sets how many parallel tests run at once, unless the flag -parallel is set. The default,
// the number of processors, is low for tests that mostly wait.
func runInParallel(n int) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// Shared returns the package's server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.get(t, Start)
}

// SharedCluster returns the package's cluster.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	return sharedCluster.get(t, StartCluster)
}

// SharedSentinel returns the package's master and replica under Sentinel.
func SharedSentinel(t testing.TB) *Sentinel {
	t.Helper()
	return sharedSentinel.get(t, StartSentinel)
}

// New starts a server for one test.
func New(t testing.TB, options ...string) *Server {
	t.Helper()
	server, err := Start(options...)
	return forTest(t, server, err)
}

// NewTLS starts a server for one test that accepts only TLS connections. The configuration
// trusts its certificate.
func NewTLS(t testing.TB, options ...string) (*Server, *tls.Config) {
	t.Helper()
	server, config, err := StartTLS(options...)
	return forTest(t, server, err), config
}

// NewCluster starts a cluster for one test.
func NewCluster(t testing.TB, options ...string) *Cluster {
	t.Helper()
	cluster, err := StartCluster(options...)
	return forTest(t, cluster, err)
}

// NewSentinel starts a master and a replica under Sentinel for one test.
func NewSentinel(t testing.TB, options ...string) *Sentinel {
	t.Helper()
	sentinel, err := StartSentinel(options...)
	return forTest(t, sentinel, err)
}

func forTest[T stopper](t testing.TB, started T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	return started
}

// patience is how long clients wait for a reply. With go-redis's default, 3 s, a client would repeat a call after a pause of the
// host, which some tests do not expect. With more than 10 s, the library would use its own timeouts.
const patience = 10 * time.Second

// Client returns a client of the server with go-redis's default options except for patience, closed
// when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: s.tls, ReadTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Client returns a client of the cluster with go-redis's default options except for patience,
// closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Client returns a client that gets the master from the sentinels, with go-redis's default options,
// closed when the test ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
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

// Rejected counts the calls that a server, or all nodes of a Cluster, rejected before running them, for
// example for lack of a right, by command. A call may succeed although another call, which the client makes
// itself, is rejected each time.
func Rejected(t testing.TB, client redis.UniversalClient) map[string]int {
	t.Helper()
	var mu sync.Mutex
	list := map[string]int{}
	count := func(ctx context.Context, node *redis.Client) error {
		stats, err := node.Info(ctx, "commandstats").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, m := range rejectedCalls.FindAllStringSubmatch(stats, -1) {
			n, _ := strconv.Atoi(m[2]) // digits
			list[m[1]] += n
		}
		return err
	}
	var err error
	if cluster, is := client.(*redis.ClusterClient); is {
		err = cluster.ForEachShard(t.Context(), count)
	} else {
		err = count(t.Context(), client.(*redis.Client))
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var rejectedCalls = regexp.MustCompile(`(?m)^cmdstat_([^:]+):.*rejected_calls=([1-9][0-9]*)`)
