package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker (-X main.release=v1.2.3).
var release string

// version is the release, or what the build knows of its commit.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}

func (p *program) versionCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			info := map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return o.print(p.stdout, info, fmt.Sprintf("hookonce %s (%s, %s)", info["version"], info["go"], info["platform"]))
		},
	}
	o.register(c)
	return c
}
