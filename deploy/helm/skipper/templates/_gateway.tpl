{{/* The containers of a gateway. Each takes (dict "root" $ "sidecar" false "first"
false "folder" "/etc/envoy"). A sidecar is an init container that goes on, so that
it starts before the pod's own containers and ends after them; where it is first,
they wait until it serves. In the folder Envoy finds what is written for it. */}}
{{- define "skipper.bootstrapContainer" -}}
- name: skipper-bootstrap
  image: {{ include "skipper.image" (dict "root" .root "name" "cli") }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  args: [envoy, bootstrap, --output-dir={{ .folder }}]
  env:
  - {name: SKIPPER_CONTROLLER_HOST, value: {{ include "skipper.controllerHost" .root }}}
  {{- if ne .folder "/etc/envoy" }}
  - {name: SKIPPER_SECRETS_DIR, value: {{ .folder }}}
  {{- else if and .sidecar (not (hasKey .root.Values.gateway.envoy.env "SKIPPER_HTTP_ADDRESS")) }}
  - {name: SKIPPER_HTTP_ADDRESS, value: 127.0.0.1} # its own pod's requests alone
  {{- end }}
  - {name: SKIPPER_HOLD_TIMEOUT, value: {{ .root.Values.gateway.holdTimeout }}}
  {{- with include "skipper.env" .root.Values.gateway.envoy.env }}{{ trim . | nindent 2 }}{{ end }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  securityContext: {{- include "skipper.locked" .root | nindent 4 }}
  volumeMounts:
  - {name: skipper-bootstrap, mountPath: {{ .folder }}}
{{- end -}}

{{- define "skipper.envoyContainer" -}}
- name: {{ ternary "skipper-envoy" "envoy" .sidecar }}
  image: {{ include "skipper.image" (dict "root" .root "name" "envoy") }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  {{- if .sidecar }}
  restartPolicy: Always
  {{- end }}
  args:
  - --config-path
  - /etc/envoy/bootstrap.yaml
  - --service-node
  - $(POD_NAME)
  - --service-cluster
  - skipper-envoy
  - --concurrency
  - {{ .root.Values.gateway.envoy.concurrency | quote }}
  - --log-level
  - {{ .root.Values.gateway.envoy.logLevel }}
  # Errors should be in the log when somebody looks, not 10 s later.
  - --file-flush-interval-msec
  - "1000"
  - --disable-hot-restart
  env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  ports:
  {{- if not .sidecar }}
  - {name: http, containerPort: 10000}
  {{- end }}
  - {name: {{ ternary "skipper-ready" "ready" .sidecar }}, containerPort: 9902}
  {{- if .first }}
  startupProbe:
    httpGet: {path: /ready, port: skipper-ready}
    periodSeconds: 1
    failureThreshold: 600
  {{- end }}
  readinessProbe:
    httpGet: {path: /ready, port: {{ ternary "skipper-ready" "ready" .sidecar }}}
    periodSeconds: 1
  resources: {{- toYaml .root.Values.gateway.envoy.resources | nindent 4 }}
  securityContext: {{- include "skipper.locked" .root | nindent 4 }}
  # Envoy ends what it has in progress when it is told to stop: it is told
  # when nothing is, as extproc finds out, or when the grace period is over.
  lifecycle: {preStop: {httpGet: {path: /drain, port: 8082}}}
  volumeMounts:
  - {name: skipper-bootstrap, mountPath: /etc/envoy, readOnly: true}
  - {name: skipper-tls-envoy, mountPath: /var/run/secrets/skipper/tls, readOnly: true}
  - {name: skipper-socket, mountPath: /run/skipper}
{{- end -}}

{{- define "skipper.extprocContainer" -}}
- name: {{ ternary "skipper-extproc" "extproc" .sidecar }}
  image: {{ include "skipper.image" (dict "root" .root "name" "extproc") }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  {{- if .sidecar }}
  restartPolicy: Always
  {{- end }}
  env:
  - {name: SKIPPER_CONTROLLER_SERVICE_HOST, value: {{ include "skipper.controllerHost" .root }}}
  - name: SKIPPER_ROUTER_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: SKIPPER_ENVOY_NODE_ID
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: SKIPPER_ZONE # empty before Kubernetes 1.35, and on nodes without a zone
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
  {{- include "skipper.tlsEnv" .root | nindent 2 }}
  - {name: SKIPPER_LIFECYCLE_PORT, value: "8082"}
  - {name: SKIPPER_HOLD_TIMEOUT, value: {{ .root.Values.gateway.holdTimeout }}}
  {{- with include "skipper.env" .root.Values.gateway.extproc.env }}{{ trim . | nindent 2 }}{{ end }}
  ports:
  - {name: {{ ternary "skipper-web" "web" .sidecar }}, containerPort: 8081}
  - {name: {{ ternary "skipper-life" "lifecycle" .sidecar }}, containerPort: 8082} # in no NetworkPolicy: for the kubelet alone
  {{- if .first }}
  startupProbe:
    httpGet: {path: /readyz, port: skipper-web}
    periodSeconds: 1
    failureThreshold: 600
  {{- end }}
  readinessProbe:
    httpGet: {path: /readyz, port: {{ ternary "skipper-web" "web" .sidecar }}}
    periodSeconds: 1
  resources: {{- toYaml .root.Values.gateway.extproc.resources | nindent 4 }}
  securityContext: {{- include "skipper.locked" .root | nindent 4 }}
  {{- if not .sidecar }}
  lifecycle: {preStop: {httpGet: {path: /drain, port: lifecycle}}} # stays while Envoy does
  {{- end }}
  volumeMounts:
  - {name: skipper-tls-extproc, mountPath: /var/run/secrets/skipper/tls, readOnly: true}
  - {name: skipper-socket, mountPath: /run/skipper}
{{- end -}}

{{/* Two roles in one pod: neither can show itself as the other. */}}
{{- define "skipper.gatewayVolumes" -}}
- name: skipper-tls-envoy
  secret: {secretName: skipper-tls-envoy, defaultMode: 0440}
- name: skipper-tls-extproc
  secret: {secretName: skipper-tls-extproc, defaultMode: 0440}
- name: skipper-socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end -}}

{{- define "skipper.bootstrapVolume" -}}
- name: skipper-bootstrap
  emptyDir: {medium: Memory, sizeLimit: 4Mi}
{{- end -}}

{{/* Envoy's bound on what extproc takes to answer: the hold time and 5 s, as
skipper envoy bootstrap has it. */}}
{{- define "skipper.maxMessageTimeout" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- $sum := 5.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" .Values.gateway.holdTimeout -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{ printf "%.3fs" $sum | replace ".000s" "s" }}
{{- end -}}
