// Command redisdelay sees into the topics of a Redis and acts on their messages: package admin
// for a terminal, and for scripts.
package main

import (
	"os"

	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
