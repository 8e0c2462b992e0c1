package queue

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// checked remembers which clients Warnings has looked at, for as long as they live:
// publishers and subscribers share clients, and one warning is enough.
var checked sync.Map // of weak pointers

// firstTime tells whether a client has not been looked at. Other kinds of clients
// than go-redis's own cannot be told apart and always are new.
func firstTime(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return remember(c)
	case *redis.ClusterClient:
		return remember(c)
	case *redis.Ring:
		return remember(c)
	default:
		return true
	}
}

func remember[T any](client *T) bool {
	pointer := weak.Make(client)
	if _, known := checked.LoadOrStore(pointer, struct{}{}); known {
		return false
	}
	runtime.AddCleanup(client, func(p weak.Pointer[T]) { checked.Delete(p) }, pointer)
	return true
}

// Warnings looks, once for each client, for settings of the server that lose
// messages, and tells the reason and the cure. What the user may not ask is left out.
func Warnings(ctx context.Context, client redis.UniversalClient) []string {
	if !firstTime(client) {
		return nil
	}
	var warnings []string
	if policy := infoField(ctx, client, "memory", "maxmemory_policy"); policy != "" && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"Redis may evict messages, since its maxmemory-policy is %s; set it to noeviction", policy))
	}
	if infoField(ctx, client, "persistence", "aof_enabled") == "0" {
		snapshots, err := client.ConfigGet(ctx, "save").Result()
		if err == nil && snapshots["save"] == "" {
			warnings = append(warnings,
				"A restart of Redis loses all messages, since it persists nothing; set appendonly to yes")
		}
	}
	return warnings
}

func infoField(ctx context.Context, client redis.UniversalClient, section, field string) string {
	info, err := client.Info(ctx, section).Result()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			return value
		}
	}
	return ""
}
