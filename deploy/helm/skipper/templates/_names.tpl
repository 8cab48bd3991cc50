{{/* The reference of an image: (dict "root" $ "name" "controller") */}}
{{- define "skipper.image" -}}
{{- $i := .root.Values.images -}}
{{- with $i.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ index $i .name }}
{{- if not (or (contains "@" (index $i .name)) (contains ":" (base (index $i .name)))) }}:{{ $i.tag }}{{ end -}}
{{- end -}}

{{- define "skipper.controllerHost" -}}
skipper-controller.{{ .Release.Namespace }}.svc.cluster.local
{{- end -}}

{{- define "skipper.labels" -}}
app.kubernetes.io/part-of: skipper
{{- end -}}

{{/* Variables of a user, in a fixed order. */}}
{{- define "skipper.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end -}}

{{- define "skipper.tlsEnv" -}}
- {name: SKIPPER_TLS_CERT_FILE, value: /var/run/secrets/skipper/tls/tls.crt}
- {name: SKIPPER_TLS_KEY_FILE, value: /var/run/secrets/skipper/tls/tls.key}
- {name: SKIPPER_TLS_CA_FILE, value: /var/run/secrets/skipper/tls/ca.crt}
{{- end -}}

{{- define "skipper.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Of a container. It says all itself, for pods that are not of this chart. */}}
{{- define "skipper.locked" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* What pods of a part have from their values: (dict "root" $ "of" .Values.controller) */}}
{{- define "skipper.scheduling" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- {name: {{ . }}}
{{- end }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* One node or zone that dies should not take all pods of a part with it. */}}
{{- define "skipper.spread" -}}
{{- $name := . -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {app.kubernetes.io/name: {{ $name }}}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{/* Where gateways come from, as peers of a NetworkPolicy. Outside of the
release's namespace, peers name it. (dict "root" $ "outside" true) */}}
{{- define "skipper.gatewayPeers" -}}
{{- if eq .root.Values.gateway.mode "deployment" }}
- podSelector:
    matchLabels: {app.kubernetes.io/name: skipper-envoy}
  {{- if .outside }}
  namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .root.Release.Namespace }}}
  {{- end }}
{{- end }}
{{- range .root.Values.gateway.namespaces }}
- podSelector:
    matchLabels: {skipper/gateway: "true"}
  namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ . }}}
{{- end }}
{{- end -}}
