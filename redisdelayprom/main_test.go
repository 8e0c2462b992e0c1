package redisdelayprom

import (
	"fmt"
	"os"
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		if err := work(job); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}
