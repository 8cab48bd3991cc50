// Package retire takes pods out of service: it drains those that may still
// have requests in progress and deletes those that have none or that nobody
// can use.
//
// Next decides, purely, what becomes of a pod that is on its way out. The
// Retirer writes annotations and deletes pods, always bound to the pod's UID,
// so that a pod which took over a name is never touched. It never decides
// which pod has to go.
package retire
