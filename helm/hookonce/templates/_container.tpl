{{- /*
The container, which is the same in both ways of deploying.

hookonce.sidecar: for the initContainers of another chart's pods. That chart has this one as a dependency and writes

  initContainers: {{- include "hookonce.sidecar" .Subcharts.hookonce | nindent 8 }}
  volumes:        {{- include "hookonce.volumes" .Subcharts.hookonce | nindent 8 }}
*/ -}}
{{- define "hookonce.sidecar" -}}
{{- if ne .Values.deployAs "sidecar" -}}
{{- fail "hookonce: a chart includes hookonce.sidecar, but deployAs is not sidecar. Set hookonce.deployAs to sidecar in that chart's values, or the chart deploys a gateway as well." -}}
{{- end -}}
{{- include "hookonce.container" . -}}
{{- end -}}

{{- define "hookonce.container" -}}
- name: hookonce
  image: {{ include "hookonce.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if eq .Values.deployAs "sidecar" }}
  restartPolicy: Always # a native sidecar: starts before the application, stops after it
  {{- end }}
  env:
    {{- range $name, $value := include "hookonce.env" . | fromYaml }}
    - name: {{ $name }}
      value: {{ $value | quote }}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: hookonce, containerPort: {{ .Values.ports.webhooks }}}
    - {name: hookonce-admin, containerPort: {{ .Values.ports.admin }}}
  # The probes ask hookonce alone. A sidecar whose start waited for the
  # application would wait for ever, since the application waits for it.
  startupProbe:
    httpGet: {path: /livez, port: {{ .Values.ports.admin }}}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: {{ .Values.ports.admin }}}
    periodSeconds: 10
    timeoutSeconds: 5
  readinessProbe:
    httpGet: {path: /readyz, port: {{ .Values.ports.admin }}}
    periodSeconds: 5
    timeoutSeconds: 3
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- include "hookonce.securityContext" . | nindent 4 }}
  volumeMounts:
    {{- include "hookonce.secretMount" . | nindent 4 }}
    {{- if .Values.database.embedded.enabled }}
    - {name: hookonce-data, mountPath: /data}
    {{- end }}
{{- end -}}

{{- define "hookonce.securityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "hookonce.secretMount" -}}
- {name: hookonce-secrets, mountPath: /etc/hookonce, readOnly: true}
{{- end -}}

{{- /* The volumes that hookonce.container mounts. Secrets are files, since hookonce reads a changed one anew. */ -}}
{{- define "hookonce.volumes" -}}
- name: hookonce-secrets
  projected:
    sources:
      {{- with .Values.database.existingSecret }}
      {{- if .name }}
      - secret: {name: {{ .name | quote }}, items: [{key: {{ .key | quote }}, path: database-url}]}
      {{- end }}
      {{- end }}
      {{- range $name, $webhook := include "hookonce.webhooks" . | fromYaml }}
      {{- with $webhook.existingSecret }}
      - secret: {name: {{ .name | quote }}, items: [{key: {{ .key | default "secret" | quote }}, path: {{ printf "webhook-%s" $name | quote }}}]}
      {{- end }}
      {{- with $webhook.snsCertificate }}
      - secret: {name: {{ .name | quote }}, items: [{key: {{ .key | default "tls.crt" | quote }}, path: {{ printf "sns-%s" $name | quote }}}]}
      {{- end }}
      {{- end }}
{{- with .Values.database.embedded }}
{{- if .enabled }}
- name: hookonce-data
  {{- if .existingClaim }}
  persistentVolumeClaim: {claimName: {{ .existingClaim | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* All webhooks by name; the one without a name is "default", as in metrics and logs. */ -}}
{{- define "hookonce.webhooks" -}}
{{- if .Values.webhook -}}{{- dict "default" .Values.webhook | toYaml -}}
{{- else -}}{{- .Values.webhooks | toYaml -}}
{{- end -}}
{{- end -}}

{{- /* The environment as a map: a setting that is null is left out. */ -}}
{{- define "hookonce.env" -}}
{{- $v := .Values -}}
{{- $env := dict
  "UPSTREAM_URL" $v.upstream.url "UPSTREAM_PROFILE" $v.upstream.profile "UPSTREAM_TIMEOUT" $v.upstream.timeout
  "LISTEN_ADDR" (printf ":%v" $v.ports.webhooks) "ADMIN_ADDR" (printf ":%v" $v.ports.admin)
  "MODE" $v.behaviour.mode "ON_UNKNOWN" $v.behaviour.onUnknown "ON_STORE_ERROR" $v.behaviour.onStoreError
  "UNMATCHED" $v.behaviour.unmatched "FORWARDED" $v.behaviour.forwarded "IN_FLIGHT_WAIT" $v.behaviour.inFlightWait
  "MAX_BODY" $v.limits.maxBody "MAX_BUFFERED" $v.limits.maxBuffered "READ_TIMEOUT" $v.limits.readTimeout
  "RETENTION" $v.retention.keep "CLEANUP_INTERVAL" $v.retention.cleanupInterval
  "SHUTDOWN_DELAY" (include "hookonce.shutdownDelay" .) "SHUTDOWN_TIMEOUT" $v.shutdown.timeout
  "LOG_LEVEL" $v.log.level "LOG_FORMAT" $v.log.format
-}}
{{- $env = merge $env (include "hookonce.storeEnv" . | fromYaml) -}}
{{- if eq $v.migration.run "serve" -}}
{{- if $v.migration.adoptTable -}}{{- $_ := set $env "ADOPT_TABLE" "true" -}}{{- end -}}
{{- else -}}
{{- $_ := set $env "AUTO_MIGRATE" "false" -}}
{{- end -}}
{{- if $v.webhooks -}}{{- $_ := set $env "WEBHOOKS" (keys $v.webhooks | sortAlpha | join ",") -}}{{- end -}}
{{- range $name, $w := include "hookonce.webhooks" . | fromYaml -}}
{{- $prefix := $v.webhook | empty | not | ternary "WEBHOOK_" (printf "WEBHOOK_%s_" ($name | replace "-" "_" | upper)) -}}
{{- $duplicate := $w.duplicate | default dict -}}
{{- $hmac := $w.hmac | default dict -}}
{{- $settings := dict
  "PATH" $w.path "PROVIDER" $w.provider "TOLERANCE" $w.tolerance "PUBLIC_URL" $w.publicURL
  "EVENT_ID" $w.eventID "MISSING_ID" $w.missingID "NAMESPACE" $w.namespace
  "DUPLICATE" $duplicate.answer "DUPLICATE_STATUS" $duplicate.status "DUPLICATE_BODY" $duplicate.body "DUPLICATE_CONTENT_TYPE" $duplicate.contentType
  "INVALID_STATUS" $w.invalidStatus "HANDSHAKE" $w.handshake "GET" $w.get
  "HMAC_HEADER" $hmac.header "HMAC_ALGORITHM" $hmac.algorithm "HMAC_ENCODING" $hmac.encoding "HMAC_PREFIX" $hmac.prefix
  "HMAC_SIGNED" $hmac.signed "HMAC_TIMESTAMP_HEADER" $hmac.timestampHeader "HMAC_ID_HEADER" $hmac.idHeader
  "TOKEN_HEADER" $w.tokenHeader
-}}
{{- if $w.existingSecret -}}{{- $_ := set $settings "SECRET_FILE" (printf "/etc/hookonce/webhook-%s" $name) -}}{{- end -}}
{{- if $w.snsCertificate -}}{{- $_ := set $settings "SNS_CERT_FILE" (printf "/etc/hookonce/sns-%s" $name) -}}{{- end -}}
{{- with $w.releaseOn -}}{{- $_ := set $settings "RELEASE_ON" (join "," .) -}}{{- end -}}
{{- with $w.notAccepted -}}{{- $_ := set $settings "NOT_ACCEPTED" (join "," .) -}}{{- end -}}
{{- range $key, $value := $settings -}}{{- $_ := set $env (print $prefix $key) $value -}}{{- end -}}
{{- end -}}
{{- include "hookonce.given" $env -}}
{{- end -}}

{{- /* What hookonce migrate needs as well. */ -}}
{{- define "hookonce.storeEnv" -}}
{{- $d := .Values.database -}}
{{- $env := dict "EVENTS_TABLE" $d.table "LEASE" $d.lease "STORE_TIMEOUT" $d.storeTimeout -}}
{{- if $d.embedded.enabled -}}{{- $_ := set $env "DATABASE_URL" "sqlite:/data/hookonce.db" -}}
{{- else -}}{{- $_ := set $env "DATABASE_URL_FILE" "/etc/hookonce/database-url" -}}
{{- end -}}
{{- include "hookonce.given" $env -}}
{{- end -}}

{{- define "hookonce.given" -}}
{{- $given := dict -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $given $name (toString $value) -}}{{- end -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}
