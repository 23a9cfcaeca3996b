"""Random imperative programs whose arrays lie on a GPU, on the driver that computes on the CPU."""

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import tracejit as tj
from tests.fuzz import running
from tests.fuzz.count import COUNT, IS_ASKED
from tests.fuzz.programs import Program, programs


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_programs(traced: bool, gpu: tj.Device) -> None:
    """All that is computed by operators that GPUs have."""
    ran = []

    @settings(
        max_examples=max(COUNT // 50, 1),
        deadline=None,
        database=None,
        derandomize=not IS_ASKED,
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
    assert len(ran) >= max(1, COUNT // 150)
