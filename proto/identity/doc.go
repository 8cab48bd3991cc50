// Package identity says who speaks on a connection between the parts of
// Skipper: a certificate of Skipper's own authority names a Role, and both ends
// check the other's.
//
// The role is the URI subject alternative name skipper://<role>. It is not a
// host name, because replicas are dialled by addresses that come and go, and
// because what a peer may do follows from what it is, not from where it runs.
// The authority must sign for nothing but Skipper: whoever holds one of its
// certificates has the role that stands in it. A certificate with no role, or
// with two, has none.
//
// Certificate, key and authorities come from files, which are read again every
// few seconds (Options.Every): a renewed certificate, or a bundle with one more
// authority, is used by the next connection. Reading beats watching here, since
// the volumes of a cluster swap whole folders by symbolic links, and the
// kubelet takes a minute anyway. Connections that exist go on until their end;
// the controllers end each after some minutes (xds/server.ServerOptions), which
// bounds how long an expired or replaced certificate stays in use. There are no
// revocation lists: to take back a certificate, replace the authority.
//
// TLS is 1.3 only, without session tickets, so that every connection shows its
// certificate. grpc-go's advancedtls 1.0 does nearly the same and is not used,
// for three reasons: its Clone forgets the kind of verification, its file
// provider prints a key that does not fit its certificate to the log, and
// neither tells a caller that files could not be read.
package identity
