// Package misfit notices what is set up wrongly outside of Skipper and would
// otherwise only show as bad luck: a pool whose ReplicaSet keeps the pods that
// were claimed from it, so that the pool runs dry, and two gateways whose Envoys
// have the same node id, so that their loads are taken for one.
//
// It says so in the log, in an event and in a metric, and changes nothing.
package misfit
