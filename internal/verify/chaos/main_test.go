package chaos

import (
	"os"
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		work(job)
		return
	}
	redistest.Main(m)
}
