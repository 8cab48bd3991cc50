{{- define "skipper.keysJob" -}}
backoffLimit: 6
activeDeadlineSeconds: 300
ttlSecondsAfterFinished: 600
template:
  metadata:
    labels: {app.kubernetes.io/name: skipper-keys}
  spec:
    serviceAccountName: skipper-keys
    enableServiceLinks: false # SKIPPER_..._PORT of a Service would read as a flag
    restartPolicy: OnFailure
    securityContext: {{- include "skipper.podSecurity" . | nindent 6 }}
    {{- with include "skipper.scheduling" (dict "root" . "of" .Values.controller) }}{{ trim . | nindent 4 }}{{ end }}
    containers:
    - name: keys
      image: {{ include "skipper.image" (dict "root" . "name" "cli") }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      args:
      - provision
      - --system-namespace={{ .Release.Namespace }}
      - --function-namespaces={{ join "," .Values.functionNamespaces }}
      {{- if ne .Values.gateway.mode "deployment" }}
      - --gateway-namespaces={{ join "," .Values.gateway.namespaces }}
      {{- end }}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 128Mi}
      securityContext: {{- include "skipper.locked" . | nindent 8 }}
{{- end -}}
