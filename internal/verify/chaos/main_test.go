package chaos

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		work(job)
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) { // by default
		_ = flag.Set("test.parallel", "8") // these tests mostly wait
	}
	redistest.Main(m)
}
