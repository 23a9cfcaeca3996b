"""Random imperative programs whose arrays lie on a GPU, on the driver that computes on the CPU."""

import os

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import tracejit as tj
from tests.fuzz import running
from tests.fuzz.programs import Program, programs

COUNT = int(os.environ.get("TRACEJIT_FUZZ", "300")) // 50


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_programs(traced: bool, gpu: tj.Device) -> None:
    """All that is computed by operators that GPUs have."""
    ran = []

    @settings(
        max_examples=max(COUNT, 1),
        deadline=None,
        database=None,
        derandomize="TRACEJIT_FUZZ" not in os.environ,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(programs())
    def run(program: Program) -> None:
        try:
            running.check_program(program, traced=traced)
        except tj.errors.DeviceError as error:
            assume("does not run on gpu:0 yet" not in str(error))
            raise
        ran.append(program)

    with running.fresh_schedules(), tj.device(gpu):
        run()
    assert len(ran) >= COUNT // 3
