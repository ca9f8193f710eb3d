"""test/house/manifests.py FOLDER PROJECT: prints in what the Kubernetes manifests of FOLDER and the
Dockerfile there disagree with each other or with the version of PROJECT, a CMakeLists.txt.

manifests_test.sh calls it.
"""
import re
import sys

import yaml


def flags_of(arguments):
    """Returns the first value of each name in words `--name=value`."""
    flags = {}
    for word in arguments:
        name, value = word.lstrip("-").split("=", 1)
        flags.setdefault(name, value)
    return flags


def mounts(spec):
    return [
        (volume, mount)
        for volume in spec["volumes"]
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["name"] == volume["name"]
    ]


def has_keys(spec, flags):
    return any("secret" in v and m["mountPath"] == flags["keys"] for v, m in mounts(spec))


def is_bounded(container):
    requests, limits = (container["resources"][k]["memory"] for k in ("requests", "limits"))
    return requests[-2:] == limits[-2:] == "Gi" and int(requests[:-2]) < int(limits[:-2])


def is_confined(spec):
    container = spec["containers"][0]["securityContext"]
    return (
        spec["securityContext"]["runAsNonRoot"]
        and container["readOnlyRootFilesystem"]
        and container["capabilities"] == {"drop": ["ALL"]}
        and not container["allowPrivilegeEscalation"]
    )


def peers(rules):
    return [
        (peer, port["port"])
        for rule in rules
        for peer in rule.get("from", rule.get("to"))
        for port in rule["ports"]
    ]


def disagreements(folder, project):
    documents = [
        document
        for file in ("troupe.yaml", "training.yaml")
        for document in yaml.safe_load_all(open(f"{folder}/{file}"))
    ]
    by_kind = {document["kind"]: document for document in documents}
    service, nodes, budget, policy, claim, job = (
        by_kind[kind]
        for kind in (
            "Service",
            "StatefulSet",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "PersistentVolumeClaim",
            "Job",
        )
    )
    name = service["metadata"]["name"]
    count = nodes["spec"]["replicas"]
    names = [f"{nodes['metadata']['name']}-{i}" for i in range(count)]
    of_nodes, of_job = (d["spec"]["template"]["metadata"]["labels"] for d in (nodes, job))
    node_pod, job_pod = (d["spec"]["template"]["spec"] for d in (nodes, job))
    node, training = (pod["containers"][0] for pod in (node_pod, job_pod))
    ports = {p["name"]: p["containerPort"] for p in node["ports"]}
    flags, of_training = flags_of(node["args"][1:]), flags_of(training["args"])
    joined = [a.split("=", 1)[1] for a in training["args"] if a.startswith("--join=")]
    saved = [
        m["mountPath"]
        for v, m in mounts(job_pod)
        if v.get("persistentVolumeClaim") == {"claimName": claim["metadata"]["name"]}
    ]
    states = [
        {"name": "STATE_DIRECTORY", "value": m["mountPath"]}
        for v, m in mounts(node_pod)
        if "emptyDir" in v
    ]
    found = service["spec"]["selector"].items()
    members = policy["spec"]["podSelector"]["matchLabels"]
    ingress, egress = peers(policy["spec"]["ingress"]), peers(policy["spec"]["egress"])
    among = {"podSelector": {"matchLabels": members}}
    version = re.search(r"project\(Troupe VERSION ([0-9.]+)", open(project).read())[1]
    docker = open(f"{folder}/Dockerfile").read()
    images = {"node": node["image"], "training": training["image"]}

    def reached(rules):
        return {port for peer, port in rules if peer == among}

    return [
        what
        for what, holds in {
            "kinds, each once": len(by_kind) == len(documents) == 6,
            "a headless service": service["spec"]["clusterIP"] == "None",
            "the service of the set": nodes["spec"]["serviceName"] == name,
            "TROUPE_SERVICE": {"name": "TROUPE_SERVICE", "value": name} in node["env"],
            "the pods that the service finds": found <= of_nodes.items(),
            "the service leaves the Job out": not found <= of_job.items(),
            "the set's own pods": nodes["spec"]["selector"]["matchLabels"].items()
            <= of_nodes.items(),
            "the port that discovery assumes": flags["listen"].endswith(":7117")
            and ports["nodes"] == 7117,
            "the page's port": flags["http"].endswith(f":{ports['http']}"),
            "the port of large payload, the next one": ports["large"] == ports["nodes"] + 1
            and ports["large"] != ports["http"],
            "a token from the secret": flags["http-token-file"].startswith(flags["keys"] + "/"),
            "the readiness probe": node["readinessProbe"]["httpGet"]
            == {"path": "/healthz", "port": "http"},
            "keys from a secret": has_keys(node_pod, flags) and has_keys(job_pod, of_training),
            "a folder for records of failures": any(state in node["env"] for state in states),
            "time to leave": node_pod["terminationGracePeriodSeconds"] >= 30,
            "limits of memory": is_bounded(node) and is_bounded(training),
            "rights": is_confined(node_pod) and is_confined(job_pod),
            "the pods of the budget": budget["spec"]["selector"]["matchLabels"].items()
            <= of_nodes.items(),
            "a budget that permits a drain": budget["spec"]["maxUnavailable"] == 1 < count,
            "the pods of the policy": members.items() <= of_nodes.items()
            and members.items() <= of_job.items(),
            "ports between members": reached(ingress)
            == reached(egress)
            == {ports["nodes"], ports["large"]},
            "the page's port for monitors": {p for peer, p in ingress if peer != among}
            == {ports["http"]},
            "both directions": policy["spec"]["policyTypes"] == ["Ingress", "Egress"],
            "the nodes that the Job joins": joined
            == [f"tcp://{node}.{name}:{ports['nodes']}" for node in names],
            "the nodes that the Job names": of_training["nodes"].split(",") == names,
            "a volume for the Job's save": len(saved) == 1
            and f"save={saved[0]}/" in training["command"][2],
            "images": images
            == {"node": f"troupe:{version}", "training": f"troupe-training:{version}"},
            "targets of the Dockerfile": re.findall(r"^FROM \S+ AS (\S+)$", docker, re.M)
            == ["node", "build", "training"]
            and all(f"--target {t} -t {image} " in docker for t, image in images.items()),
            "the user of the images": set(re.findall(r"^USER (\d+)", docker, re.M))
            == {str(node_pod["securityContext"]["runAsUser"])},
            "the program of the image": f'["{node["command"][0]}"]' in docker,
        }.items()
        if not holds
    ]


print("\n".join(disagreements(*sys.argv[1:])))
