{{- define "fleetlight.labels" -}}
app.kubernetes.io/name: fleetlight
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fleetlight.selector" -}}
app.kubernetes.io/name: fleetlight
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleetlight.name" -}}
{{- if contains "fleetlight" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-fleetlight{{ end }}
{{- end }}

{{- /* Whether the values make sense together; values.schema.json has looked at each one. */ -}}
{{- define "fleetlight.check" -}}
{{- $api := mergeOverwrite (deepCopy (.Values.settings.api | default dict)) ((.Values.processes.api.settings | default dict).api | default dict) }}
{{- if .Values.processes.api.enabled }}
{{- if not (has $api.auth (list "basic" "keystone")) }}
{{- fail "settings.api.auth: say basic or keystone. none would believe every caller, and tokens writes its file, which pods do not share" }}
{{- end }}
{{- if and (gt (int .Values.processes.api.replicas) 1) (not (index (merge dict (.Values.processes.api.secrets | default dict) .Values.secrets) "api.watch_key")) }}
{{- fail "secrets: api.watch_key is missing: pods of the API share one, so that each takes watches and sessions of the others. Say {secret: NAME, key: KEY}, or processes.api.replicas: 1" }}
{{- end }}
{{- end }}
{{- if not (index .Values.secrets "fleet.database_url") }}
{{- fail "secrets: fleet.database_url is missing: say {secret: NAME, key: KEY} of a secret that holds the address of the fleet database" }}
{{- end }}
{{- if eq .Values.settings.index.backend "sqlite" }}
{{- fail "settings.index.backend: sqlite is one file of one machine, which pods do not share: say elasticsearch or opensearch" }}
{{- end }}
{{- end }}

{{- /* The specification of a pod. Takes top: the root; its: the values of this process; args: of the command. */ -}}
{{- define "fleetlight.pod" -}}
{{- $values := .top.Values }}
{{- $settings := mergeOverwrite (deepCopy $values.settings) (dict "monitoring" (dict "host" "0.0.0.0" "port" 9100)) (deepCopy (.its.settings | default dict)) }}
{{- $secrets := mergeOverwrite (deepCopy $values.secrets) (deepCopy (.its.secrets | default dict)) }}
{{- $files := mergeOverwrite (deepCopy $values.files) (deepCopy (.its.files | default dict)) }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .its.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .its.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .its.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: fleetlight
    image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default .top.Chart.AppVersion) | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ toJson .args }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    env:
      {{- range $section, $keys := $settings }}
      {{- range $key, $value := $keys }}
      - name: {{ printf "FLEETLIGHT_%s_%s" $section $key | upper }}
        {{- /* Helm reads whole numbers as floating ones. */}}
        value: {{ if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ toJson $value | quote }}{{ end }}
      {{- end }}
      {{- end }}
      {{- range $name, $ := $secrets }}
      - name: {{ printf "FLEETLIGHT_%s_FILE" ($name | replace "." "_") | upper }}
        value: /run/secrets/fleetlight/{{ $name }}
      {{- end }}
      {{- range $name, $ := $files }}
      - name: {{ printf "FLEETLIGHT_%s" ($name | replace "." "_") | upper }}
        value: /run/secrets/fleetlight/{{ $name }}
      {{- end }}
      {{- with .its.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- if .serves }}
    ports:
      {{- if eq .serves "api" }}
      - {name: api, containerPort: 8774}
      {{- end }}
      - {name: monitoring, containerPort: 9100}
    # A process waits for databases that are away, alive; it has this long to begin.
    startupProbe:
      httpGet: {path: /healthz, port: monitoring}
      periodSeconds: 2
      timeoutSeconds: 20
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /healthz, port: monitoring}
      periodSeconds: 10
      timeoutSeconds: 20
    readinessProbe:
      httpGet: {path: /readyz, port: monitoring}
      periodSeconds: 5
      timeoutSeconds: 5
    {{- end }}
    {{- with .its.resources }}
    resources: {{ toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      - {name: secrets, mountPath: /run/secrets/fleetlight, readOnly: true}
volumes:
  - name: tmp
    emptyDir: {}
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        {{- range $name, $from := mergeOverwrite $secrets $files }}
        - secret:
            name: {{ $from.secret | quote }}
            items: [{key: {{ $from.key | quote }}, path: {{ $name | quote }}}]
        {{- end }}
{{- end }}
