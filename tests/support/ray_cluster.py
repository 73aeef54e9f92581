"""A Ray cluster of small nodes on this machine, in its own process: the process of the tests does not load Ray.

It prints its address, the address for clients and the process ids of its nodes. It ends when its input ends.
"""

import json
import os
import sys
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# The server for clients forks a process for each, while gRPC's threads run. gRPC's own handlers of forks crash in some
# of them (ray-project/ray#60316).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

if __name__ == "__main__":
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    port = int(sys.argv[2])
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small | {"ray_client_server_port": port})
    nodes = [cluster.head_node, *(cluster.add_node(**small) for _ in range(int(sys.argv[1]) - 1))]
    raylets = [node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid for node in nodes]
    print(json.dumps({"address": cluster.address, "client": f"ray://127.0.0.1:{port}", "raylets": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()
