from __future__ import annotations

import pytest

from benchcore.cell.explain.torch_profile import describe_code

CODE = """\
# AOT ID: ['0_inference']
from torch._inductor.select_algorithm import extern_kernels
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r\'\'\'
#include "{path}/cpp_prefix.h"
// made of {path}/model.py
extern "C"  void  kernel(float* in_out_ptr0) {{ relu(in_out_ptr0, {constant}); }}
\'\'\')
triton_poi_1 = async_compile.triton('triton_poi_1', \'\'\'...\'\'\')

def call(args):
    # Topologically Sorted Source Nodes: [{path}], Original ATen: [aten.convolution]
    buf2 = extern_kernels.convolution(buf0, buf1, stride=(1, 1))
    buf3 = buf2; del buf2  # {path}
    extern_kernels.addmm(arg8_1, buf4, out=buf5)
    extern_kernels.addmm(arg8_1, buf5, out=buf6)
    buf7 = torch.ops.aten.max_pool2d.default(buf6)
"""


def _describe(*places: str, constant: int = 0) -> dict[str, object]:
    return describe_code(CODE.format(path=place, constant=constant) for place in places)


def test_kernels_and_library_calls_are_counted() -> None:
    assert _describe("/a")["counts"] == {
        "generated kernel": 2,
        "library addmm": 2,
        "library convolution": 1,
        "library max_pool2d": 1,
    }


def test_the_hash_of_code_ignores_only_its_paths() -> None:
    assert _describe("/a")["hash"] == _describe("/tmp/b/c")["hash"]
    assert _describe("/a")["hash"] != _describe("/a", constant=1)["hash"]


def test_a_second_graph_makes_another_program_in_whatever_order() -> None:
    one, other = CODE.format(path="/a", constant=0), CODE.format(path="/a", constant=1)
    both = [describe_code(pair)["hash"] for pair in ((one, other), (other, one))]
    assert both[0] == both[1] != describe_code([one])["hash"]


@pytest.mark.parametrize("sources", [[], ()])
def test_no_code_has_no_hash(sources: list[str]) -> None:
    assert describe_code(sources) == {"hash": None, "counts": {}}
