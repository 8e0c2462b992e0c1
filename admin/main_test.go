package admin

import (
	"fmt"
	"os"
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(moverEnv); job != "" {
		if err := moveInProcess(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Parallel(4) // moves that are killed mostly wait for a Redis
	redistest.Main(m)
}
