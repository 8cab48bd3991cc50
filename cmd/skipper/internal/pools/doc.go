// Package pools reads pools from their Deployments and pods: how full they are,
// and what is set up wrongly. It is pure; pods are read as the controller reads
// them, so both see the same states and problems.
package pools
