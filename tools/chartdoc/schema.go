package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// object is a JSON schema or a part of one.
type object = map[string]any

func typed(kind string, more ...object) object {
	o := object{"type": kind}
	for _, m := range more {
		for k, v := range m {
			o[k] = v
		}
	}
	return o
}

func orNull(o object) object { return object{"oneOf": []object{o, {"type": "null"}}} }

func listOf(item object) object { return typed("array", object{"items": item}) }

var (
	name      = typed("string", object{"minLength": 1})
	free      = object{"type": "object"}
	rules     = listOf(free)
	texts     = typed("object", object{"additionalProperties": object{"type": "string"}})
	count     = typed("integer", object{"minimum": 1})
	port      = typed("integer", object{"minimum": 1, "maximum": 65535})
	seconds   = typed("integer", object{"minimum": 0, "maximum": 3600})
	percent   = orNull(typed("integer", object{"minimum": 1, "maximum": 100}))
	host      = typed("string", object{"pattern": `^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?$`})
	routed    = typed("string", object{"pattern": `^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`})
	secret    = typed("string", object{"pattern": `^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`, "maxLength": 253})
	owner     = typed("string", object{"pattern": "^([0-9a-f]{64}|npub1[02-9ac-hj-np-z]{58})$"})
	label     = typed("string", object{"pattern": `^([a-z]([a-z0-9-]*[a-z0-9])?)?$`})
	spread    = object{"enum": []string{"ScheduleAnyway", "DoNotSchedule"}}
	duration  = typed("string", object{"pattern": `^0$|^([0-9.]+(ns|us|ms|s|m|h))+$`})
	probe     = typed("object", object{"additionalProperties": false, "properties": probeFields})
	resources = typed("object", object{"additionalProperties": false, "properties": object{"requests": free, "limits": free, "claims": rules}})

	probeFields = object{
		"initialDelaySeconds": seconds, "periodSeconds": count, "timeoutSeconds": count, "failureThreshold": count, "successThreshold": count,
	}
	community = typed("object", object{"additionalProperties": false, "required": []string{"host"}, "properties": object{
		"host": host, "owner": owner, "name": object{"type": "string"}, "description": object{"type": "string"},
		"access": object{"enum": []string{"open", "closed"}}, "aliases": listOf(host),
	}, "if": object{"not": object{"required": []string{"access"}, "properties": object{"access": object{"const": "open"}}}}, "then": object{"required": []string{"owner"}}})
)

// special are the keys whose default does not tell what they may be; paths within a component's block have none of its name.
var special = map[string]object{
	"commonLabels": texts, "commonAnnotations": texts,
	"image.tags": typed("object", object{"additionalProperties": false, "properties": object{
		"gateway": name, "ingest": name, "fanout": name, "search": name, "apiary": name,
	}}),
	"image.pullPolicy": {"enum": []string{"Always", "IfNotPresent", "Never"}}, "image.pullSecrets": listOf(name),
	"cluster.partitions": count, "cluster.limit": count, "cluster.maxContent": typed("integer", object{"minimum": 0}), "cluster.maxSkew": duration,
	"postgres.existingSecret": secret, "postgres.migration.existingSecret": secret, "nats.existingSecret": secret, "relayKey.existingSecret": secret,
	"nats.streamReplicas": {"enum": []int{1, 3, 5}},
	"communities":         listOf(community),
	"ingress.annotations": texts, "ingress.hosts": listOf(routed), "ingress.tls": rules,
	"httpRoute.annotations": texts, "httpRoute.parentRefs": rules, "httpRoute.hostnames": listOf(routed),
	"networkPolicy.clientsFrom": rules, "networkPolicy.metricsFrom": rules, "networkPolicy.operatorsFrom": rules,
	"networkPolicy.postgresTo": rules, "networkPolicy.natsTo": rules, "networkPolicy.extraEgress": rules,
	"networkPolicy.postgresPort": port, "networkPolicy.natsPort": port,
	"serviceMonitor.labels": texts, "migrations.activeDeadlineSeconds": count,
	"migrations.resources": resources, "evaluation.postgres.resources": resources, "evaluation.nats.resources": resources,
	"test.host": host,

	"*.replicas": count, "*.autoscaling.minReplicas": count, "*.autoscaling.maxReplicas": count,
	"*.autoscaling.targetCPU": percent, "*.autoscaling.targetMemory": percent, "*.autoscaling.metrics": rules, "*.autoscaling.behavior": free,
	"*.resources": resources, "*.pdb.maxUnavailable": {"oneOf": []object{count, typed("string", object{"pattern": "^[1-9][0-9]*%$"})}},
	"*.drain.preStopSeconds": seconds, "*.drain.timeoutSeconds": typed("integer", object{"minimum": 1, "maximum": 3600}),
	"*.probes.startup": probe, "*.probes.liveness": probe, "*.probes.readiness": probe,
	"*.topologySpread.zone": spread, "*.topologySpread.node": spread,
	"*.podLabels": texts, "*.podAnnotations": texts, "*.serviceAccount.annotations": texts,
	"*.extraEnv": rules, "*.extraVolumes": rules, "*.extraVolumeMounts": rules, "*.nodeSelector": texts, "*.tolerations": rules, "*.affinity": free,
	"gateway.service.type": {"enum": []string{"ClusterIP", "NodePort", "LoadBalancer"}}, "gateway.service.port": port,
	"gateway.service.externalTrafficPolicy": {"enum": []any{nil, "Cluster", "Local"}}, "gateway.service.annotations": texts,

	"jobs.podLabels": texts, "jobs.podAnnotations": texts, "jobs.extraEnv": rules, "jobs.extraVolumes": rules, "jobs.extraVolumeMounts": rules,
	"jobs.nodeSelector": texts, "jobs.tolerations": rules, "jobs.affinity": free,
	"migrations.annotations": texts, "networkPolicy.migrationTo": rules, "networkPolicy.migrationPort": orNull(port), "networkPolicy.dnsPort": port,
	"evaluation.nodeSelector": texts, "evaluation.tolerations": rules, "evaluation.postgres.runAsUser": count,
	"nameOverride": label, "fullnameOverride": label,
}

// schemaOf returns values.schema.json. No object takes a key that values.yaml does not have, but those that are free in form.
func schemaOf(top *value, known settings) ([]byte, error) {
	var shape *value
	for _, v := range top.inner {
		if v.path == "defaults" {
			shape = v
		}
	}
	if shape == nil {
		return nil, errors.New("values.yaml has no defaults")
	}
	properties := object{"global": free}
	var needed []string
	for _, v := range top.inner {
		s, err := schema(v, true)
		if err != nil {
			return nil, err
		}
		flags := known.common()
		if isComponent(v.path) {
			flags = known.open(v.path)
		}
		if isComponent(v.path) || v == shape {
			block, err := schema(shape, v == shape)
			if err != nil {
				return nil, err
			}
			takes := block["properties"].(object)
			takes["config"] = config(flags)
			for _, own := range []string{"resources", "service"} { // no default holds for all of them
				if its, ok := s["properties"].(object)[own].(object); ok {
					takes[own] = its
					if its["required"] != nil {
						block["required"] = []string{own}
					}
				}
			}
			s = block
		}
		properties[v.path] = s
		if needs(v, s) {
			needed = append(needed, v.path)
		}
	}
	text, err := json.MarshalIndent(object{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart apiary",
		"type": "object", "additionalProperties": false, "properties": properties, "required": needed,
	}, "", " ")
	return append(text, '\n'), err
}

// config is a component's settings.
func config(flags []string) object {
	one := object{"type": []string{"string", "number", "boolean", "array"}, "items": object{"type": "string"}}
	properties := object{}
	for _, flag := range flags {
		properties[flag] = one
	}
	return typed("object", object{"additionalProperties": false, "properties": properties})
}

// schema returns what a key may hold: what special says, or the type of its default. whole says that no key in it that the
// templates need may be missing, which a null in somebody's values makes it.
func schema(v *value, whole bool) (object, error) {
	block, rest, _ := strings.Cut(v.path, ".")
	if block == "defaults" || isComponent(block) {
		if s, ok := special["*."+rest]; ok {
			return s, nil
		}
	}
	if s, ok := special[v.path]; ok {
		return s, nil
	}
	if len(v.inner) > 0 {
		properties := object{}
		var needed []string
		for _, inner := range v.inner {
			s, err := schema(inner, whole)
			if err != nil {
				return nil, err
			}
			name := inner.path[strings.LastIndexByte(inner.path, '.')+1:]
			properties[name] = s
			if whole && needs(inner, s) {
				needed = append(needed, name)
			}
		}
		o := typed("object", object{"additionalProperties": false, "properties": properties})
		if needed != nil {
			o["required"] = needed
		}
		return o, nil
	}
	d, err := v.decoded()
	if err != nil {
		return nil, err
	}
	switch d.(type) {
	case string:
		return object{"type": "string"}, nil
	case bool:
		return object{"type": "boolean"}, nil
	case int:
		return typed("integer", object{"minimum": 0}), nil
	case map[string]any:
		return free, nil
	}
	return nil, fmt.Errorf("%s: its default %v does not tell what it may be; say it in special", v.path, d)
}

// needs says that the templates cannot do without a key: one that holds others, or whose default is something and not a
// collection, and which is not null for nothing.
func needs(v *value, s object) bool {
	if len(v.inner) > 0 {
		return true
	}
	if of, ok := s["oneOf"].([]object); ok && slices.ContainsFunc(of, func(o object) bool { return o["type"] == "null" }) {
		return false
	}
	switch d, _ := v.decoded(); d := d.(type) {
	case string:
		return d != ""
	case bool:
		return d
	case int:
		return d != 0
	}
	return false
}
