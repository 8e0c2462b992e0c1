package queue

import (
	"testing"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	redistest.Parallel(8) // what is parallel mostly waits
	redistest.Main(m)
}
