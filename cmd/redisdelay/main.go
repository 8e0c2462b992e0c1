// Command redisdelay inspects and manages the topics of a Redis: package admin for a terminal and for
// scripts.
package main

import (
	"os"
	_ "time/tzdata" // zones of schedules, on hosts without a tz database of their own

	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
