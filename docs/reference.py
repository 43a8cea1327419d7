"""The reference, made from the code: commands, the form, keys of a site, profiles, variables,
terms, checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
from docutils.nodes import Node
from great_expectations.expectations.row_conditions import ComparisonCondition
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.cli import get_docs_for_click

from benchcore.planning.profiles import PROFILES
from benchcore.running.sites import Site
from benchcore.running.slurm.allocation import Allocation
from benchcore.variables import VARIABLES
from dashboards.website.glossary import GLOSSARY
from data_checks.suites import list_suites
from flows.cli.main import load_commands
from tasks.form import Comparison

_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "pattern": "as `{}`",
}


def write_commands() -> str:
    """Every command with its options, as Typer documents them."""
    group = load_commands()
    context = typer.Context(group, info_name="deadheat")
    whole = get_docs_for_click(obj=group, ctx=context, name="deadheat")
    return whole[whole.index("\n## ") :]


def write_keys() -> str:
    """Every key of a site's file."""
    tables = (
        ("A site", Site),
        ("A pool of a Slurm site: `[pools.NAME]`", Allocation),
    )
    return "\n\n".join(f"## {title}\n\n{_write_table(model)}" for title, model in tables)


def write_profiles() -> str:
    """Every profile with the docstring of its function."""
    meanings = {name: " ".join((make.__doc__ or "").split()) for name, make in PROFILES.items()}
    rows = "\n".join(f"| `{name}` | {words} |" for name, words in meanings.items())
    return f"| profile | meaning |\n|---|---|\n{rows}"


def write_form() -> str:
    """Every field of the form for a comparison."""
    meanings = {each.title: each.description for each in Comparison.model_fields.values()}
    rows = "\n".join(f"| {title} | {words} |" for title, words in meanings.items())
    return f"| field | meaning |\n|---|---|\n{rows}"


def write_variables() -> str:
    """Every environment variable that users set."""
    rows = "\n".join(f"| `{each.name}` | {each.meaning} |" for each in VARIABLES)
    return f"| variable | meaning |\n|---|---|\n{rows}"


def write_terms() -> str:
    """Every term that the pages explain."""
    rows = "\n".join(f"| {term} | {meaning} |" for term, meaning in sorted(GLOSSARY.items()))
    return f"| term | meaning |\n|---|---|\n{rows}"


def write_checks() -> str:
    """Every expectation with the rows that it checks, and the reason that a failed row gets."""
    lines = [
        "| rows | check | expectation | reason of a failure | applies where | effect |",
        "|---|---|---|---|---|---|",
    ]
    for name, _, expectations in list_suites():
        for each in expectations:
            meaning = each.meta.get("meaning", each.meta["reason"])
            meaning = re.sub(r"\{(\w+)[^}]*\}", r"`\1`", meaning)
            where = _format_condition(getattr(each, "row_condition", None))
            effect = "warning" if each.severity == "warning" else "does not count"
            kind = f"`{type(each).__name__}`" + (
                f": {each.description}" if each.description else ""
            )
            cells = (name, each.meta["name"], kind, meaning, where, effect)
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines)


def _format_condition(condition: ComparisonCondition | None) -> str:
    """'`status` is ok'; "" without a condition."""
    if condition is None:
        return ""
    verb = {"==": "is", "!=": "is not"}[condition.operator]
    return f"`{condition.column.name}` {verb} {condition.parameter}"


def _write_table(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        default = _format_default(field, required=key in schema.get("required", ()))
        cells = (f"`{key}`", _format_values(field), default, field.get("description", ""))
        assert cells[-1], f"{model.__name__}.{key} has no description"
        lines.append(f"| {' | '.join(each.replace('|', '&#124;') for each in cells)} |")
    return "\n".join(lines)


def _format_default(field: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "(must be given)"
    default = field.get("default")
    if default in (None, [], {}):
        return "none"
    written = {True: "true", False: "false"}.get(default) if isinstance(default, bool) else default
    return f"`{written}`"


def _format_values(field: Mapping[str, Any]) -> str:
    """'integer, at least 1, at most 16'; null is left out."""
    if "anyOf" in field:
        return _format_values(next(each for each in field["anyOf"] if each.get("type") != "null"))
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    named = field.get("type", "object")  # a table of its own is a reference
    kind = {"object": "table", "array": "list"}.get(named, named)
    if "items" in field and field["items"].get("type"):
        kind = f"list of {field['items']['type']}s"
    return ", ".join([kind, *(_LIMITS[key].format(field[key]) for key in _LIMITS if key in field)])


class _Generated(SphinxDirective):
    """A directive that stands for Markdown which the code writes. Its own content is for readers of
    the source."""

    has_content = True
    write: ClassVar[Callable[[], str]]

    def run(self) -> list[Node]:
        """Its nodes; headings become sections of the page."""
        return self.parse_text_to_nodes(type(self).write(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Each is a directive of Sphinx."""
    written = (write_commands, write_form, write_keys, write_profiles, write_variables)
    for write in (*written, write_terms, write_checks):
        name = write.__name__.removeprefix("write_")
        app.add_directive(name, type(name, (_Generated,), {"write": staticmethod(write)}))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
