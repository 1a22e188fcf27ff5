{{- define "hookonce.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "hookonce.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}{{- $name = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}{{- $name = .Release.Name -}}
{{- else -}}{{- $name = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- /* 63 less what "-metrics" needs */ -}}
{{- $name | trunc 55 | trimSuffix "-" -}}
{{- end -}}

{{- define "hookonce.ownLabels" -}}
app.kubernetes.io/name: {{ include "hookonce.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hookonce.labels" -}}
{{ include "hookonce.ownLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The pods that hookonce is in: its own, or the application's. */ -}}
{{- define "hookonce.podSelector" -}}
{{- if eq .Values.deployAs "sidecar" -}}{{- toYaml .Values.sidecar.podSelector -}}
{{- else -}}{{- include "hookonce.ownLabels" . -}}
{{- end -}}
{{- end -}}

{{- /* Whether the chart knows such pods. */ -}}
{{- define "hookonce.hasPods" -}}
{{- if or (eq .Values.deployAs "gateway") .Values.sidecar.podSelector -}}yes{{- end -}}
{{- end -}}

{{- define "hookonce.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hookonce.serviceAccountName" -}}
{{- default (include "hookonce.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "hookonce.shutdownDelay" -}}
{{- .Values.shutdown.delay | default (eq .Values.deployAs "gateway" | ternary "5s" "0s") -}}
{{- end -}}

{{- /* A Go duration in seconds. */ -}}
{{- define "hookonce.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (toString .) -1 -}}
{{- $factor := hasSuffix "ms" . | ternary 0.001 (hasSuffix "h" . | ternary 3600.0 (hasSuffix "m" . | ternary 60.0 1.0)) -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) $factor) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- /* A size of hookonce (25MiB) or a quantity of Kubernetes (384Mi, 1G) in MiB. */ -}}
{{- define "hookonce.mebibytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text | float64 -}}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" | trimSuffix "B" -}}
{{- $factors := dict "" 9.5367431640625e-07 "k" 0.00095367431640625 "Ki" 0.0009765625 "M" 0.95367431640625 "Mi" 1.0 "G" 953.67431640625 "Gi" 1024.0 -}}
{{- mulf $number (get $factors $unit | default 1048576.0) -}}
{{- end -}}
