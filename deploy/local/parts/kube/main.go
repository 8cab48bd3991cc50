// Command kube is one binary for all parts of Kubernetes that run on the node, and kubectl:
// the first argument, or the name it is called by, picks the part. One binary shares the
// code that all of them link, which is most of it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func names() []string {
	return []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
		"kubelet", "kube-proxy", "kubectl",
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	if !slices.Contains(names(), name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if !slices.Contains(names(), name) {
		fmt.Fprintf(os.Stderr, "usage: kube %s [flags]\n", strings.Join(names(), "|"))
		os.Exit(2)
	}
	os.Exit(run(name))
}

func run(name string) int {
	switch name {
	case "etcd":
		return runEtcd(os.Args[1:])
	case "kubectl":
		return runKubectl()
	default:
		return cli.Run(command(name))
	}
}

func command(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return kcm.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	default:
		return proxy.NewProxyCommand()
	}
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
