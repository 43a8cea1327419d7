"""Writes a run of Weights & Biases to disk, in W&B's offline mode, and checks that it arrived.

Started as a process of its own: `python -m dashboards.to_wandb.writer write CONTENT FOLDER`, where
CONTENT is a JSON file from `dashboards.to_wandb.content`, and `... check FILE`, where FILE is the
`complete.json` of a run that was written whole.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import wandb

from benchcore.protocol import write_json

_OFFLINE = wandb.Settings(
    mode="offline",
    program="deadheat",
    console="off",
    silent=True,
    save_code=False,
    disable_git=True,
    x_disable_meta=True,
    x_disable_stats=True,
    x_disable_machine_info=True,
    x_save_requirements=False,
)


def write(content: dict[str, Any], folder: Path) -> None:
    """Write the run below `folder`/wandb, and at last its `complete.json`."""
    run = wandb.init(
        entity=content["entity"],
        project=content["project"],
        id=content["id"],
        name=content["id"],
        group=content["group"],
        job_type=content["kind"],
        tags=content["tags"],
        notes=content["notes"],
        config=content["config"],
        dir=folder,
        settings=_OFFLINE,
    )
    _log(run, content)
    complete = _log_documents(run, content) if content["documents"] else {}
    run.finish()
    write_json(Path(run.dir).parent / "complete.json", complete)


def _log(run: wandb.Run, content: dict[str, Any]) -> None:
    """One line per night. Only the last, of this night, makes the run's summary."""
    run.define_metric("JAX speedup/*", summary="none")
    for line in content["history"]:
        run.log(line)
    night: dict[str, Any] = {"_timestamp": content["at"], **content["speedups"]}
    night |= {name: _make_table(each) for name, each in content["tables"].items()}
    if content["forest"] is not None:
        night["forest"] = wandb.Html(content["forest"], inject=False)
    run.log(night)
    run.summary.update(content["speedups"])


def _log_documents(run: wandb.Run, content: dict[str, Any]) -> dict[str, str]:
    """What `check` needs to know."""
    documents = _collect_documents(content)
    run.log_artifact(documents)
    place = "/".join(filter(None, (content["entity"], content["project"], documents.name)))
    return {"artifact": f"{place}:latest", "digest": documents.digest}


def check(complete: dict[str, str]) -> None:
    """Raises ValueError unless W&B has the documents, if there were any. `wandb sync` ends with 0
    even if a server refused to store them."""
    if not complete:
        return
    found = wandb.Api().artifact(complete["artifact"])
    if found.digest != complete["digest"]:
        raise ValueError(f"W&B has other documents as {complete['artifact']}")


def _make_table(table: dict[str, Any]) -> wandb.Table:
    return wandb.Table(columns=table["columns"], data=table["rows"], allow_mixed_types=True)


def _collect_documents(content: dict[str, Any]) -> wandb.Artifact:
    """The result documents, from which everything else can be made again."""
    documents = wandb.Artifact(f"documents-{content['id']}", type="result-documents")
    for path in content["documents"]:
        documents.add_file(path, name=Path(path).name, skip_cache=True, policy="immutable")
    return documents


def _read(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", content, folder]:
            write(_read(content), Path(folder))
        case ["check", complete]:
            check(_read(complete))
        case _:
            sys.exit(__doc__)
