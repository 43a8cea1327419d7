"""Inspects a contender's timed step in one start: everything about it besides its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchcore.cell.bound_program import DRAWN, OPERATION_SIZE, BoundProgram, Step
from benchcore.cell.in_float32 import InFloat32
from benchcore.cell.measure.timing import Last, choose_group_size
from benchcore.cell.proof.following.drawing import REPEATED, follow_draws, join_losses, repeats
from benchcore.cell.proof.manifest import read_manifest
from benchcore.cell.proof.sharing import describe_repeated
from benchcore.cell.proof.steps import same_work
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.proof.watching.host_calls import NONE
from benchcore.cell.proof.watching.own_code import list_timed
from benchcore.cell.proof.watching.switches import AS_SET, WORK, works_meanwhile
from benchcore.cell.runtimes.runtime import Runtime
from benchcore.program import Arrays

if TYPE_CHECKING:
    import numpy as np

RunSteps = Callable[[int, Step | None], int]
FAIR = (NONE, AS_SET, "all", "yes")


def describe_size(flops: float, num_shapes: int) -> dict[str, str]:
    """Readings of the typical product of a step. Where its inputs have several shapes, `shape_size`
    shows whether each is computed for itself: joining two saves a program."""
    names = ("product_size", "shape_size") if num_shapes > 1 else ("product_size",)
    return dict.fromkeys(names, f"{flops:.4g} FLOP")


class Inspection:
    """Inspects the step of one start. `alone`: no other process must follow the steps. Calls
    `report_alive` between its parts, each of several steps."""

    def __init__(
        self,
        runtime: Runtime,
        program: BoundProgram,
        run_steps: RunSteps,
        *,
        alone: bool,
        in_float32: InFloat32,
        report_alive: Callable[[], object] = lambda: None,
    ) -> None:
        self._runtime, self._program, self._run_steps = runtime, program, run_steps
        self._alone, self._in_float32, self._report_alive = alone, in_float32, report_alive
        self._products: dict[str, Any] | None = None
        self._watched: dict[str, str] = {}
        self._works = False
        self._draws = False
        self._unlike: dict[str, str] = {}
        self._timed: list[str] = []
        """What steps called when `spot_check` was called last."""

    def list_switches(self) -> dict[str, object]:
        """Switches that the contender's own list lacks: what is timed, and work between steps."""
        return {**list_timed(self._program), WORK: self._works}

    def spot_check(self, message: Mapping[str, Any], group_size: int) -> None:
        """If a message wants it, list what steps call between two timed blocks, at a moment that no
        program can foresee: `after` compares it. The blocks were planned for results of the size
        that `group_size` follows from."""
        if not (message.get("spot_check") and self._alone):
            return
        self._timed, sizes = self._list_timed()
        if group_size not in sizes:
            self._unlike = {"owed": "results of another size than a block was planned for"}

    def _list_timed(self) -> tuple[list[str], set[int]]:
        """What the steps of one rotation call as they are timed, and the sizes of groups that
        follow from their results."""
        last, calls, sizes = Last(self._program.plain_step), list[str](), set[int]()
        for _ in self._program.rotation.buffers:
            calls += self._runtime.list_work(last.step, timed=True)
            sizes.add(choose_group_size(last.outputs))
            last.outputs = None
            self._report_alive()
        return calls, sizes

    def check_block(self, steps: int) -> None:
        """Run and check a short block. `steps` is the length of a timed block. Raises
        StepUnlikeProofError."""
        self._program.check_block(self._run_steps, self._runtime.synchronise, steps)

    def after(self, steps: int, *, whole: bool, learn: Step | None = None) -> None:
        """Inspect the step after the timed blocks of `steps` steps. What a step does on the host is
        watched before anything is reset. With `whole` its products are counted, and the arrays that
        it reads are compared. `learn` as in `check_left_behind`. Reset the program afterwards.
        Raises StepUnlikeProofError."""
        runtime, program = self._runtime, self._program
        self._works = works_meanwhile()
        later = self._list_timed()[0] if self._timed else []  # first: nothing ran eagerly yet
        unseen = self.list_unseen() if whole else []
        self._report_alive()
        self._watched = runtime.watch_step(program, to_end=False)
        self._report_alive()
        program.check_left_behind(
            lambda step: self._run_steps(steps, step),
            runtime.synchronise,
            lambda: runtime.manifest(program.held()).get("dropout") == "random",
            learn,
        )
        self._report_alive()
        self.check_block(steps)
        if whole:
            same_work.check_timed(self._timed, later)
            self._report_alive()
            self.check_unseen(unseen)
            self._report_alive()
            self._run_steps(steps, None)  # the state may have been reset
            self._products = runtime.count_products(program)
            program.settle(runtime.synchronise)  # what was traced has left tracers
            self._report_alive()
            if not program.is_alone:
                share = (self._products or {}).get("compiled_share")
                self._watched |= describe_repeated(share)
            self._read_step(steps)
            self._report_alive()
            program.check_returned(self._run_steps)

    def list_unseen(self) -> list[str]:
        """What steps call before any other function of the program is called. Empty if other
        processes follow them."""
        return self._program.list_work(self._runtime.list_work) if self._alone else []

    def check_unseen(self, unseen: Sequence[str]) -> None:
        """Later steps must call the same. Raises StepUnlikeProofError."""
        if self._alone:
            self._program.check_work(self._runtime.list_work, unseen)

    def _read_step(self, steps: int) -> None:
        """What a step reads and draws; and a long block of a training."""
        runtime, program = self._runtime, self._program
        taken = self._take_readings()
        self._watched |= taken
        if taken.get(DRAWN) == "0":  # so its timed steps are those of the proof
            program.check_training(self._run_steps, random=True)
        program.check_long_block(
            self._run_steps, runtime.synchronise, steps, random=taken.get(DRAWN) == "0"
        )
        drawn = taken.get(DRAWN, "0") != "0"
        self._draws = drawn and program.is_alone and program.use_case == "train"

    def _take_readings(self) -> dict[str, str]:
        runtime, program = self._runtime, self._program
        if not self._alone:
            return program.describe_kept(runtime.list_floats)
        operations: list[str] = []

        def inspect(step: Step) -> Readings | None:
            if found := runtime.inspect_step(step):
                operations.extend(found.operations)
            return found

        taken = program.describe_readings(inspect)
        taken |= self._in_float32.describe(operations)
        if size := (self._products or {}).get("size"):
            self._watched |= describe_size(size, program.num_shapes)
            taken.pop(OPERATION_SIZE, None)  # of operations that differ more
        return taken

    def take_losses(self, start: Arrays | None) -> dict[str, np.ndarray]:
        """The losses of steps with given random bits, as evidence. Empty if the last inspection
        found no training steps that draw random numbers, or if they were taken before."""
        if start is None or not self._draws:
            return {}
        self._draws = False
        program, runtime = self._program.program, self._runtime
        try:
            found = follow_draws(program, start, runtime.synchronise, runtime.draw_given)
            losses = join_losses(found)
        except Exception as error:  # noqa: BLE001 - whatever a step does when it is traced
            self._watched["generator"] = f"numbers that can't be given ({error})"[:500]
            return {}
        finally:
            program.reset(start.params)
        if repeats(found):
            self._watched["generator"] = REPEATED
        return losses

    def prove_in_float32(self, when: str) -> Mapping[str, np.ndarray]:
        """`InFloat32.prove` of the program that the last inspected step was compared with."""
        return self._in_float32.prove(when)

    def account(self, canary: Mapping[str, Any] | None, **readings: str) -> dict[str, Any]:
        """The part `effective` of a document, with further readings of the manifest."""
        runtime = self._runtime
        manifest = read_manifest(runtime, self._program, canary, alone=self._alone)
        early = {key: value for key, value in self._watched.items() if value not in FAIR}
        early |= self._unlike
        effective = {**runtime.effective(), "manifest": {**manifest, **early, **readings}}
        return effective if self._products is None else {**effective, "products": self._products}
