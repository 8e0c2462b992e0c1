package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionJSON is what this program was built from.
type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the commit was, before it was built
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func build() versionJSON {
	v := versionJSON{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, known := debug.ReadBuildInfo()
	if !known {
		return v
	}
	v.Version = info.Main.Version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}

func (v versionJSON) String() string {
	text := "redisdelay " + v.Version
	if v.Commit != "" {
		text += fmt.Sprintf(" (commit %.12s)", v.Commit)
	}
	return text + ", " + v.Go + ", " + v.Platform
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Say which version this is", Args: arguments, DisableFlagsInUseLine: true}
	cmd.RunE = func(*cobra.Command, []string) error {
		if a.json() {
			return a.object(build())
		}
		return a.printf("%s\n", build())
	}
	return cmd
}
