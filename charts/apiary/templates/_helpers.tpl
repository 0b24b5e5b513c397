{{- /* What the chart knows of each component; everything that it makes for them ranges over this.
port, protocol: where it is called. postgres, nats: what it needs. calls: the components that it calls, which are the arrows of
services/docs/architecture.md, and so its targets and the network policies. operators: whether operators' commands call it. */ -}}
{{- define "apiary.components" -}}
gateway: {port: 3000, protocol: http, postgres: false, nats: true, calls: [ingest, fanout, search], operators: false}
ingest: {port: 7401, protocol: grpc, postgres: true, nats: true, calls: [], operators: true}
fanout: {port: 7402, protocol: grpc, postgres: false, nats: true, calls: [search], operators: false}
search: {port: 7403, protocol: grpc, postgres: true, nats: true, calls: [], operators: true}
{{- end -}}

{{- define "apiary.adminPort" -}}9090{{- end -}}

{{- define "apiary.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimAll "-" -}}
{{- end -}}

{{- define "apiary.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimAll "-" -}}
{{- else if contains (include "apiary.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimAll "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "apiary.name" .) | trunc 40 | trimAll "-" -}}
{{- end -}}
{{- end -}}

{{- /* The settings of a component: the defaults and what its own block says. Takes a dict of root and name. */ -}}
{{- define "apiary.settings" -}}
{{- mergeOverwrite (deepCopy .root.Values.defaults) (deepCopy (index .root.Values .name)) | toYaml -}}
{{- end -}}

{{- /* Labels that select pods; they never change. Takes a dict of root and name. */ -}}
{{- define "apiary.selector" -}}
app.kubernetes.io/name: {{ include "apiary.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- /* Labels of an object. Takes a dict of root, name (component), and optionally further ones as labels. */ -}}
{{- define "apiary.labels" -}}
{{- $own := dict
  "app.kubernetes.io/part-of" "apiary"
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/version" (.root.Values.image.tag | default .root.Chart.AppVersion | regexFind "^[^@]*" | trunc 63 | trimAll "-_.")
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- merge (include "apiary.selector" . | fromYaml) $own (default dict .labels) (default dict .root.Values.commonLabels) | toYaml -}}
{{- end -}}

{{- /* Labels of pods: a new chart version alone replaces none. Takes further ones as own, which the chart needs, and labels. */ -}}
{{- define "apiary.podLabels" -}}
{{- $own := merge (dict "app.kubernetes.io/part-of" "apiary") (default dict .own) -}}
{{- merge (include "apiary.selector" . | fromYaml) $own (default dict .labels) (default dict .root.Values.commonLabels) | toYaml -}}
{{- end -}}

{{- /* Metadata of an object. Takes a dict of root, name (component), and optionally suffix, labels and annotations. */ -}}
{{- define "apiary.metadata" -}}
name: {{ include "apiary.fullname" .root }}-{{ .name }}{{ .suffix }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "apiary.labels" . | nindent 2 }}
{{- with mergeOverwrite (deepCopy (default dict .root.Values.commonAnnotations)) (deepCopy (default dict .annotations)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "apiary.image" -}}
{{- $i := .root.Values.image -}}
{{- with $i.registry }}{{ . }}/{{ end }}{{ $i.repository }}/{{ .name }}:{{ index (default dict $i.tags) .name | default $i.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- /* Where another component is called: every address of its headless Service is a replica. The short name is found in the pod's own
namespace by the first question to DNS, whatever the cluster's domain is. */ -}}
{{- define "apiary.target" -}}
dns:///{{ include "apiary.fullname" .root }}-{{ .name }}-peers:{{ .port }}
{{- end -}}

{{- define "apiary.env" -}}APIARY_{{ . | upper | replace "." "_" | replace "-" "_" }}{{- end -}}

{{- /* The environment of a component as a flat map of names to texts: what the chart sets, and config on top. Takes a dict of root, name,
facts, all (components) and settings. */ -}}
{{- define "apiary.environment" -}}
{{- $c := .root.Values.cluster -}}
{{- $env := dict "APIARY_ADMIN_LISTEN" (printf "0.0.0.0:%s" (include "apiary.adminPort" .)) "APIARY_DRAIN_TIMEOUT" (printf "%ds" (int .settings.drain.timeoutSeconds)) -}}
{{- $listen := printf "0.0.0.0:%d" (int .facts.port) -}}
{{- if eq .facts.protocol "grpc" }}{{ $_ := set $env "APIARY_GRPC_LISTEN" $listen }}{{ else }}{{ $_ := set $env "APIARY_LISTEN" $listen }}{{ end -}}
{{- range .facts.calls -}}
{{- $_ := set $env (include "apiary.env" (printf "%s.targets" .)) (include "apiary.target" (dict "root" $.root "name" . "port" (index $.all . "port"))) -}}
{{- end -}}
{{- $agreed := dict "partitions" $c.partitions "limit" $c.limit "max-content" $c.maxContent "created-at-window" $c.maxSkew "max-skew" $c.maxSkew "stream-replicas" .root.Values.nats.streamReplicas -}}
{{- range index (include "apiary.agreed" . | fromYaml) .name -}}
{{- $_ := set $env (include "apiary.env" .) (include "apiary.text" (index $agreed .)) -}}
{{- end -}}
{{- if and (eq .name "ingest") .root.Values.evaluation.enabled -}}
{{- /* What fits into the evaluation's NATS. */ -}}
{{- $_ := merge $env (dict "APIARY_EVENTS_MAX_BYTES" "2147483648" "APIARY_EPHEMERAL_MAX_BYTES" "67108864" "APIARY_PRESENCE_MAX_BYTES" "16777216") -}}
{{- end -}}
{{- range $flag, $value := .settings.config -}}
{{- $_ := set $env (include "apiary.env" $flag) (include "apiary.text" $value) -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{- /* Which settings the chart sets to the same in several components. */ -}}
{{- define "apiary.agreed" -}}
gateway: [partitions, limit, max-content, created-at-window]
ingest: [partitions, max-content, max-skew, stream-replicas]
fanout: [partitions]
search: [limit]
{{- end -}}

{{- /* A value as a text: numbers without an exponent, lists with commas. */ -}}
{{- define "apiary.text" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else if kindIs "slice" . }}{{ join "," . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{- /* Environment from Secrets, as a list. Takes a dict of root and facts. */ -}}
{{- define "apiary.secretEnv" -}}
{{- $v := .root.Values -}}
{{- if .facts.postgres }}
- name: APIARY_POSTGRES_URL
  valueFrom: {secretKeyRef: {name: {{ include "apiary.postgresSecret" .root | quote }}, key: {{ include "apiary.postgresKey" .root | quote }}}}
{{- end }}
{{- if .facts.nats }}
- name: APIARY_NATS_URL
  valueFrom: {secretKeyRef: {name: {{ include "apiary.natsSecret" .root | quote }}, key: {{ include "apiary.natsKey" .root | quote }}}}
{{- with $v.nats.credentialsKey }}
- {name: APIARY_NATS_CREDENTIALS, value: {{ printf "/etc/apiary/nats/%s" . | quote }}}
{{- end }}
{{- with $v.nats.caKey }}
- {name: APIARY_NATS_CA, value: {{ printf "/etc/apiary/nats/%s" . | quote }}}
{{- end }}
{{- end }}
{{- with $v.relayKey.existingSecret }}
{{- if eq $.name "gateway" }}
- name: APIARY_SELF
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: {{ $v.relayKey.publicKey | quote }}}}
{{- else if eq $.name "ingest" }}
- name: APIARY_RELAY_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: {{ $v.relayKey.secretKey | quote }}}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "apiary.evaluationSecret" -}}{{ include "apiary.fullname" . }}-evaluation{{- end -}}
{{- define "apiary.postgresSecret" -}}
{{- if .Values.evaluation.enabled }}{{ include "apiary.evaluationSecret" . }}{{ else }}{{ .Values.postgres.existingSecret }}{{ end -}}
{{- end -}}
{{- define "apiary.postgresKey" -}}{{ if .Values.evaluation.enabled }}postgres-url{{ else }}{{ .Values.postgres.urlKey }}{{ end }}{{- end -}}
{{- define "apiary.natsSecret" -}}
{{- if .Values.evaluation.enabled }}{{ include "apiary.evaluationSecret" . }}{{ else }}{{ .Values.nats.existingSecret }}{{ end -}}
{{- end -}}
{{- define "apiary.natsKey" -}}{{ if .Values.evaluation.enabled }}nats-url{{ else }}{{ .Values.nats.urlKey }}{{ end }}{{- end -}}

{{- /* What PodSecurity's restricted level asks for. Both take the user's id. */ -}}
{{- define "apiary.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}
{{- define "apiary.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* What every pod of ours begins with. */ -}}
{{- define "apiary.podCommon" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* What a dict holds, without what is empty. */ -}}
{{- define "apiary.given" -}}
{{- $given := dict -}}
{{- range $key, $value := . }}{{ if $value }}{{ $_ := set $given $key $value }}{{ end }}{{ end -}}
{{- if $given }}{{ toYaml $given }}{{ end -}}
{{- end -}}

{{- /* Where pods may run. Takes a block of values. */ -}}
{{- define "apiary.scheduling" -}}
{{- include "apiary.given" (pick . "priorityClassName" "nodeSelector" "tolerations" "affinity") -}}
{{- end -}}

{{- /* What the pods of Jobs have besides, as keys of a container. Takes the block jobs. */ -}}
{{- define "apiary.jobContainer" -}}
{{- include "apiary.given" (dict "env" .extraEnv "volumeMounts" .extraVolumeMounts) -}}
{{- end -}}

{{- /* The pods of a component. Takes a dict of root and name. */ -}}
{{- define "apiary.podSelector" -}}
podSelector:
  matchLabels:
    {{- include "apiary.selector" . | nindent 4 }}
{{- end -}}

{{- /* Rules of egress that several policies have. */ -}}
{{- define "apiary.dnsEgress" -}}
{{- $port := .Values.networkPolicy.dnsPort -}}
- ports: [{port: {{ $port }}, protocol: UDP}, {port: {{ $port }}, protocol: TCP}]
{{- end -}}
{{- define "apiary.extraEgress" -}}
{{- with .Values.networkPolicy.extraEgress }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- /* Takes a dict of root, and to and port where they differ from those of the components. */ -}}
{{- define "apiary.postgresEgress" -}}
{{- $p := .root.Values.networkPolicy -}}
{{- if .root.Values.evaluation.enabled -}}
- ports: [{port: 5432}]
  to:
    - {{- include "apiary.podSelector" (dict "root" .root "name" "postgres") | nindent 6 }}
{{- else -}}
- ports: [{port: {{ default $p.postgresPort .port }}}]
  {{- with default $p.postgresTo .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
