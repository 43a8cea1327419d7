from __future__ import annotations

import math
import subprocess
import sys

from data_checks.rows import LIMIT_Z, accuracy_z


def test_accuracies_are_compared_with_chance_over_their_images() -> None:
    error = math.sqrt(2 * 0.5 * 0.5 / 1000)
    assert math.isclose(accuracy_z(520, 480, 1000), 0.04 / error)
    assert accuracy_z(8, 11, 32) < LIMIT_Z < accuracy_z(800, 1100, 3200)


def test_equal_accuracies_of_0_or_1_do_not_differ() -> None:
    assert accuracy_z(0, 0, 10) == accuracy_z(10, 10, 10) == 0.0
    assert accuracy_z(0, 10, 10) > LIMIT_Z


def test_great_expectations_is_imported_only_when_rows_are_checked() -> None:
    code = (
        "import sys, data_checks.check; "
        "assert not [each for each in sys.modules if each.startswith('great_expectations')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
