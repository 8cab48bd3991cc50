package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdStart bounds the wait for the first election of a single member, which takes about a second.
const etcdStart = time.Minute

// runEtcd serves a one-member etcd until a signal comes. It takes the few of etcd's flags that
// a one-node cluster needs, under their usual names.
func runEtcd(args []string) int {
	config, err := etcdConfig(args)
	if err == nil {
		err = serveEtcd(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func etcdConfig(args []string) (*embed.Config, error) {
	c := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.StringVar(&c.Dir, "data-dir", "default.etcd", "folder of the data")
	flags.BoolVar(&c.UnsafeNoFsync, "unsafe-no-fsync", false, "do not wait for the disk; a power loss may lose data")
	clientURL := flags.String("listen-client-urls", "http://127.0.0.1:2379", "address for clients")
	peerURL := flags.String("listen-peer-urls", "http://127.0.0.1:2380", "address for peers")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	client, errClient := url.Parse(*clientURL)
	peer, errPeer := url.Parse(*peerURL)
	if err := errors.Join(errClient, errPeer); err != nil {
		return nil, err
	}
	c.LogLevel = "warn"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	return c, nil
}

func serveEtcd(config *embed.Config) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(etcdStart):
		return fmt.Errorf("etcd has no leader after %v", etcdStart)
	case <-signals:
		return nil
	}
	select {
	case <-signals:
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("serve etcd: %w", err)
	}
}
