// Command hookonce is a reverse-proxy sidecar that makes each webhook event run
// once, in front of an unmodified application.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
