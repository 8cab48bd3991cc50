// Package connect takes an operator's commands to the cluster: the kubeconfig,
// the controllers behind it, and who the operator is to them.
//
// A controller is reached through a port forward to its pod, so whoever may do
// that and read the operator's Secret needs nothing else; or at an address that
// was given. Keys stay in memory.
package connect
