package cluster

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"time"
)

// component is one process of the node. health is the URL that answers 200 when it works;
// files are its configuration: a change of them, or of argv, needs a restart.
type component struct {
	name   string
	argv   []string
	files  []string
	health string
	limit  time.Duration
}

// startOrder is the order of starting; the stop goes in steps of its own, see Down.
func startOrder() []string {
	return []string{
		"containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	}
}

func (n Node) component(name string) component {
	c := component{name: name, limit: time.Minute}
	switch name {
	case "containerd":
		c.argv = []string{n.program("containerd"), "-c", filepath.Join(n.State, "containerd.toml")}
		c.files = []string{"containerd.toml"}
	case "etcd":
		c.argv, c.health = n.kube(name, n.etcdFlags()), "http://127.0.0.1:12379/health"
	case "kube-apiserver":
		c.argv, c.health = n.kube(name, n.apiServerFlags()), n.API()+"/readyz"
	case "kube-controller-manager":
		c.argv, c.health = n.kube(name, n.controllerManagerFlags()), "https://127.0.0.1:16257/healthz"
	case "kube-scheduler":
		c.argv, c.health = n.kube(name, n.schedulerFlags()), "https://127.0.0.1:16259/healthz"
	case "kube-proxy":
		c.argv, c.health = n.kube(name, n.proxyFlags()), "http://127.0.0.1:10256/healthz"
	case "kubelet":
		c.argv, c.health = n.kube(name, n.kubeletFlags()), "http://127.0.0.1:10248/healthz"
		c.files = []string{"kubelet.yaml", "cni/10-bridge.conflist"}
	}
	return c
}

func (n Node) kube(name string, flags []string) []string {
	return append([]string{n.program("kube"), name}, flags...)
}

func (n Node) etcdFlags() []string {
	return []string{
		"--data-dir=" + filepath.Join(n.State, "etcd"),
		"--listen-client-urls=http://127.0.0.1:12379",
		"--listen-peer-urls=http://127.0.0.1:12380",
		"--unsafe-no-fsync=true", // the state is thrown away after a crash of the machine
	}
}

func (n Node) apiServerFlags() []string {
	address := n.Address.Addr().String()
	return []string{
		"--etcd-servers=http://127.0.0.1:12379",
		"--bind-address=" + address,
		"--advertise-address=" + address,
		"--secure-port=" + strconv.Itoa(n.APIPort),
		"--tls-cert-file=" + n.pki("apiserver.crt"),
		"--tls-private-key-file=" + n.pki("apiserver.key"),
		"--client-ca-file=" + n.pki("ca.crt"),
		"--service-cluster-ip-range=" + n.Services.String(),
		"--endpoint-reconciler-type=lease", // with none the kubernetes Service has no endpoint
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + n.pki("sa.crt"),
		"--service-account-signing-key-file=" + n.pki("sa.key"),
		"--allow-privileged=true",
		"--profiling=false",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority=" + n.pki("ca.crt"),
		"--kubelet-client-certificate=" + n.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + n.pki("apiserver-kubelet-client.key"),
		"--requestheader-client-ca-file=" + n.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + n.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + n.pki("front-proxy-client.key"),
	}
}

// The limits of 200 requests per second are there because a pool refills in bursts: at the
// usual 20 a hundred pods would wait for their turn.

func (n Node) controllerManagerFlags() []string {
	return append(n.clientFlags("kcm"),
		"--service-account-private-key-file="+n.pki("sa.key"),
		"--root-ca-file="+n.pki("ca.crt"),
		"--use-service-account-credentials=true",
		"--secure-port=16257",
		"--cert-dir="+filepath.Join(n.State, "kcm"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (n Node) schedulerFlags() []string {
	return append(n.clientFlags("scheduler"),
		"--secure-port=16259",
		"--cert-dir="+filepath.Join(n.State, "scheduler"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (n Node) clientFlags(user string) []string {
	kubeconfig := n.pki(user + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--profiling=false",
	}
}

func (n Node) proxyFlags() []string {
	return []string{
		"--kubeconfig=" + n.pki("kube-proxy.kubeconfig"),
		"--hostname-override=" + n.Name,
		"--proxy-mode=nftables",
		"--cluster-cidr=" + n.Address.Masked().String(),
		"--detect-local-mode=ClusterCIDR",
		"--nodeport-addresses=" + netip.PrefixFrom(n.Address.Addr(), 32).String(),
		// These kernel settings cannot be written in many containers, and are not needed.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s",
		"--healthz-bind-address=127.0.0.1:10256",
		"--metrics-bind-address=127.0.0.1:10249",
		"--profiling=false",
	}
}

func (n Node) kubeletFlags() []string {
	return []string{
		"--config=" + filepath.Join(n.State, "kubelet.yaml"),
		"--kubeconfig=" + n.pki("kubelet.kubeconfig"),
		"--root-dir=" + filepath.Join(n.State, "kubelet"),
		"--cert-dir=" + filepath.Join(n.State, "kubelet", "pki"),
		"--hostname-override=" + n.Name,
		"--node-ip=" + n.Address.Addr().String(),
	}
}
