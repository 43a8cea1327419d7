"""Keeps the forms' list of versions up to date: those that are built in a state folder."""

from __future__ import annotations

from packaging.version import Version
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate

from benchcore.environments.build import list_environments
from benchcore.protocol import COMPARED
from benchcore.state import State
from tasks.form import add_versions
from tasks.server.prefect_server import list_our_deployments


def list_built_versions(state: State) -> dict[str, list[str]]:
    """The versions of each framework that the state folder has an environment of, newest first."""
    locked = [each.packages for each in list_environments(state)]
    built = {
        framework: {
            Version(Version(packages[framework]).public)
            for packages in locked
            if framework in packages
        }
        for framework in COMPARED
    }
    return {name: [str(each) for each in sorted(built[name], reverse=True)] for name in built}


def update_forms(state: State) -> None:
    """List the built versions in the forms of the deployments that use this state folder."""
    built = list_built_versions(state)
    with get_client(sync_client=True) as client:
        for each in list_our_deployments(client):
            if (each.job_variables or {}).get("env", {}).get("DEADHEAT_STATE") != str(state.root):
                continue
            schema = add_versions(each.parameter_openapi_schema or {}, built)
            if schema != each.parameter_openapi_schema:
                wanted = DeploymentUpdate(parameter_openapi_schema=schema)
                client.update_deployment(each.id, wanted)
