// Command apiary is the all-in-one relay, a small client for any relay, and the operator's commands.
package main

import (
	"os"

	"github.com/apiary-relay/apiary/services/apiary/internal/cli"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

func main() {
	commands := cli.New(os.Args[0], os.Stdin)
	boot.Command("apiary", "A Nostr relay for team workspaces: runs it, talks to it, looks after it.", commands, commands.Run)
}
