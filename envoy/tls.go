package envoy

import (
	"net/netip"
	"path"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/proto/identity"
)

// Files in Config.TLSDir, named as in a Secret of type kubernetes.io/tls.
const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	authoritiesFile = "ca.crt"
)

// Names of the secrets; each stands in a file of its own in Config.SecretsDir.
const (
	identitySecret    = "skipper-identity"
	authoritiesSecret = "skipper-authorities"
)

func secretFile(name string) string { return name + ".yaml" }

// Secrets are the files that must lie in c.SecretsDir beside the bootstrap, by
// name; nil for an Envoy that speaks plaintext to the controllers. Envoy
// watches TLS files only where such a file names them, not the bootstrap.
func Secrets(c Config) (map[string][]byte, error) {
	if c.ControllerPlaintext {
		return nil, nil
	}
	b := &builder{cfg: c}
	out := map[string][]byte{}
	for _, s := range []*tlsv3.Secret{b.identity(), b.authorities()} {
		text, err := YAML(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{b.any(s)}})
		if err != nil {
			return nil, err
		}
		out[secretFile(s.GetName())] = text
	}
	return out, b.err
}

func (b *builder) identity() *tlsv3.Secret {
	return &tlsv3.Secret{Name: identitySecret, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: b.tlsFile(certificateFile), PrivateKey: b.tlsFile(keyFile), WatchedDirectory: b.tlsWatch(),
	}}}
}

func (b *builder) authorities() *tlsv3.Secret {
	return &tlsv3.Secret{Name: authoritiesSecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: b.tlsFile(authoritiesFile), WatchedDirectory: b.tlsWatch(),
	}}}
}

func (b *builder) tlsFile(name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path.Join(b.cfg.TLSDir, name)}}
}

// tlsWatch is the folder in which the kubelet moves a link when a Secret changes.
func (b *builder) tlsWatch() *corev3.WatchedDirectory {
	return &corev3.WatchedDirectory{Path: b.cfg.TLSDir}
}

// controllerTLS is how Envoy shows itself to controllers and knows them: by
// their role, since they are dialled by addresses. Nil is plaintext.
func (b *builder) controllerTLS() *corev3.TransportSocket {
	if b.cfg.ControllerPlaintext {
		return nil
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: b.any(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsParams:                      &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
				AlpnProtocols:                  []string{"h2"},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{b.secretConfig(identitySecret)},
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						DefaultValidationContext:         onlyControllers(),
						ValidationContextSdsSecretConfig: b.secretConfig(authoritiesSecret),
					},
				},
			},
			Sni:            b.controllerName(),
			MaxSessionKeys: wrapperspb.UInt32(0), // every connection shows the certificate of its time
		})},
	}
}

// controllerName is empty for an IP, which TLS does not take as a name.
func (b *builder) controllerName() string {
	if _, err := netip.ParseAddr(b.cfg.ControllerHost); err == nil {
		return ""
	}
	return b.cfg.ControllerHost
}

func onlyControllers() *tlsv3.CertificateValidationContext {
	return &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
		SanType: tlsv3.SubjectAltNameMatcher_URI,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: identity.Controller.URI()}},
	}}}
}

func (b *builder) secretConfig(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{
			Path: path.Join(b.cfg.SecretsDir, secretFile(name)),
		}},
	}}
}
