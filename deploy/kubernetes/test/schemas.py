#!/usr/bin/env python3
"""schemas.py SWAGGER.json FOLDER: strict JSON schemas for kubeconform, one a kind, out of Kubernetes' own description."""
import json
import os
import sys

with open(sys.argv[1]) as f:
    definitions = json.load(f)["definitions"]
folder = sys.argv[2]
os.makedirs(folder, exist_ok=True)
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def resolve(schema, within):
    """The schema with its references put in, which knows no other members than its own."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name == QUANTITY or definitions[name].get("format") == "int-or-string":
            return {"type": ["string", "integer", "number"]}
        return {} if name in within else resolve(definitions[name], within | {name})
    out = {k: v for k, v in schema.items() if k in ("type", "required", "enum")}
    if schema.get("format") == "int-or-string":
        out["type"] = ["string", "integer"]
    if "items" in schema:
        out["items"] = resolve(schema["items"], within)
    if "properties" in schema:
        out["properties"] = {k: resolve(v, within) for k, v in schema["properties"].items()}
        out["additionalProperties"] = False
    elif "additionalProperties" in schema:
        out["additionalProperties"] = resolve(schema["additionalProperties"], within)
    return out


for name, definition in definitions.items():
    for kind in definition.get("x-kubernetes-group-version-kind", []):
        group = kind["group"].split(".")[0]
        file = "-".join(part for part in (kind["kind"].lower(), group, kind["version"]) if part)
        schema = resolve(definition, {name})
        if "properties" in schema:
            version = "/".join(part for part in (kind["group"], kind["version"]) if part)
            schema["properties"]["apiVersion"] = {"enum": [version]}
            schema["properties"]["kind"] = {"enum": [kind["kind"]]}
        with open(os.path.join(folder, file + ".json"), "w") as f:
            json.dump(schema, f)
