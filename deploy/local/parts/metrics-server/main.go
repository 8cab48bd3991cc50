// Command metrics-server is the upstream metrics server at the pinned version.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/logs"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func main() {
	logs.InitLogs()
	err := app.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()).Execute()
	logs.FlushLogs()
	if err != nil {
		os.Exit(1)
	}
}
