"""What forms offer to choose from, which changes while a server lives: the versions built here."""

from __future__ import annotations

from packaging.version import Version
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate

from benchcore.environments import list_environments
from benchcore.state import State
from tasks.deployments import list_ours
from tasks.form import offer_versions


def list_built(state: State) -> dict[str, list[str]]:
    """The versions of each framework that the state folder has an environment of, newest first."""
    locked = [each.packages for each in list_environments(state)]
    built = {
        framework: {
            Version(Version(packages[framework]).public)
            for packages in locked
            if framework in packages
        }
        for framework in ("jax", "torch")
    }
    return {name: [str(each) for each in sorted(built[name], reverse=True)] for name in built}


def offer_built(state: State) -> None:
    """Have the forms of the server's deployments that work in this state folder offer what is built
    now."""
    built = list_built(state)
    with get_client(sync_client=True) as client:
        for each in list_ours(client).values():
            if (each.job_variables or {}).get("env", {}).get("DEADHEAT_STATE") != str(state.root):
                continue
            schema = offer_versions(each.parameter_openapi_schema or {}, built)
            if schema != each.parameter_openapi_schema:
                wanted = DeploymentUpdate(parameter_openapi_schema=schema)
                client.update_deployment(each.id, wanted)
