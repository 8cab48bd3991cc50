// Package xds names the resources that controllers, Envoys and extprocs
// exchange. Building them is package xds/resource, serving them xds/server,
// and the small client of extproc xds/client.
package xds
