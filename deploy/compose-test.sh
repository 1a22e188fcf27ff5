#!/usr/bin/env bash
# Is compose.yaml what Compose understands, are all its files there, and does it refuse to start without secrets? Half a
# minute, once built. Needs Go (it asks Compose's own loader; no Docker).
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'module check\n\ngo 1.26\n' >"$work/go.mod"
cat >"$work/main.go" <<'GO'
// check loads a compose file as docker compose would, and looks for the files that it mounts.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions([]string{os.Args[1]}, cli.WithOsEnv)
	if err == nil {
		project, failed := options.LoadProject(context.Background())
		if err = failed; err == nil {
			for _, service := range project.Services {
				for _, volume := range service.Volumes {
					if volume.Type == "bind" {
						if _, missing := os.Stat(volume.Source); missing != nil {
							err = missing
						}
					}
				}
			}
			fmt.Println(project.ServiceNames())
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
GO
file=$PWD/compose.yaml
cd "$work"
go get github.com/compose-spec/compose-go/v2/cli@v2.6.0 2>/dev/null
go build -o check .
WEBHOOK_SECRET=whsec_x POSTGRES_PASSWORD=x ./check "$file"
for missing in WEBHOOK_SECRET POSTGRES_PASSWORD; do
  if env WEBHOOK_SECRET=whsec_x POSTGRES_PASSWORD=x "$missing=" ./check "$file" >said; then
    echo "started without $missing"; exit 1
  fi
  grep -q "$missing" said
done
