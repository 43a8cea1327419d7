"""The templates in `deployments/environments/`: what is installed with a framework."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from benchcore.errors import UserError
from benchcore.protocol import Framework


@dataclass(frozen=True, kw_only=True)
class Template:
    """One file of `deployments/environments/`: a framework's companions and its verification."""

    packages: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    cuda_extras: list[str] = field(default_factory=list)
    cuda_plugin: bool = False
    """Whether CUDA comes as a plugin's package, so that a lock without one is not for CUDA."""
    cuda_backends: list[str] = field(default_factory=list)
    """Values of uv's `--torch-backend`, tried where the registry's build needs a newer driver."""
    cpu_index: bool = False
    extras: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Further packages and imports by name, for the environments that a request names them for."""
    verification: str

    def add(self, extras: Sequence[str]) -> Template:
        """The template of an environment with these extras. Raises UserError for an unknown one."""
        unknown = [each for each in extras if each not in self.extras]
        if unknown:
            raise UserError(
                f"wanted packages of {', '.join(self.extras) or 'none'} in brackets, got "
                f"{unknown[0]!r}; choose one, or add it to deployments/environments"
            )
        more = [self.extras[each] for each in extras]
        return replace(
            self,
            packages=[*self.packages, *(one for each in more for one in each["packages"])],
            imports=[*self.imports, *(one for each in more for one in each["imports"])],
        )


def template_folder() -> Traversable:
    """The folder of the templates."""
    return resources.files("deployments") / "environments"


def load_template(framework: Framework, folder: Traversable) -> Template:
    """Read a framework's template. Raises UserError on an unknown key or a wrong type."""
    path = folder / f"{framework}.toml"
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"wanted an environment template, got {str(path)!r}: {error}; correct the file"
        ) from error
    kinds = {
        **dict.fromkeys(("packages", "imports", "cuda_extras", "cuda_backends"), list),
        **dict.fromkeys(("cpu_index", "cuda_plugin"), bool),
        "extras": dict,
    }
    known = {each.name for each in fields(Template)}
    wrong = sorted(
        key
        for key, value in document.items()
        if key not in known or not isinstance(value, kinds.get(key, str))
    )
    if wrong or "verification" not in document:
        raise UserError(
            f"wanted the keys {sorted(known)} and a verification in {str(path)!r}, got unknown or "
            f"wrongly typed {wrong}; correct the file"
        )
    return Template(**document)
