package periodic_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(hostEnv); job != "" {
		if err := beHost(job); err != nil {
			fmt.Fprintln(os.Stderr, "host:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}
