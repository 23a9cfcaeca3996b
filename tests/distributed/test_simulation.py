"""The simulator: times that follow from costs by hand, and steps that are measured."""

import pytest

import tracejit as tj
from tracejit.cli import main
from tracejit.distributed.simulation import Costs, Work, predict
from tracejit.errors import ArgumentError

FREE = Costs(0, 0, 0, 0, 0)
MEGABYTE = 1 << 20


def seconds(work, ranks=2, latency=0.0, bandwidth=1e9, cores=2.0, threads=1, costs=FREE):
    found = predict(work, ranks, latency, bandwidth, cores=cores, threads=threads, costs=costs)
    return pytest.approx(found.seconds, rel=1e-6)


def exchange(nbytes=MEGABYTE, **more):
    return Work("exchange", kind="exchange", nbytes=nbytes, **more)


def test_one_rank_computes_only():
    work = [
        Work("forward", 0.01, uses=(0,)),
        exchange(after=(0,)),
        Work("update", 0.002, after=(1,), uses=(0,)),
    ]
    assert seconds(work, ranks=1, latency=1.0) == 0.012


@pytest.mark.parametrize(
    ("cores", "threads", "expected"), [(4, 4, 0.01), (2, 4, 0.02), (0.5, 1, 0.08), (4, 2, 0.02)]
)
def test_threads_share_the_cores(cores, threads, expected):
    assert (
        seconds([Work("kernel", 0.04, width=8, uses=(0,))], ranks=1, cores=cores, threads=threads) == expected
    )


def test_work_that_cannot_be_shared_takes_its_time():
    assert seconds([Work("kernel", 0.04, uses=(0,))], ranks=1, cores=4, threads=4) == 0.04
    two = [Work("a", 0.04, uses=(0,)), Work("b", 0.04, uses=(1,))]
    assert seconds(two, ranks=1, cores=4, threads=4) == 0.04


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_an_exchange_sends_the_bytes_of_a_ring_in_two_phases(ranks):
    work = [exchange(2 * MEGABYTE, uses=(0,))]
    sent = 4 * MEGABYTE * (ranks - 1) / ranks / 1e9
    assert seconds(work, ranks, latency=1e-3) == sent + 2e-3
    assert seconds([exchange(1000, uses=(0,))], ranks, latency=1e-3) == 1000 * (ranks - 1) / 1e9 + 1e-3


def test_two_ranks_send_an_array_of_a_bucket_whole():
    assert seconds([exchange(uses=(0,))], 2, latency=1e-3) == MEGABYTE / 1e9 + 1e-3


def test_exchanges_hide_behind_later_work():
    """The link needs as long as the backward pass, and both go on from step to step."""
    each = MEGABYTE / 1e9
    work = []
    for number in range(4):
        work.append(Work("backward", each, after=(2 * number - 2,) if number else (), uses=(9,)))
        work.append(exchange(after=(2 * number,), uses=(number,)))
    apart = [Work("backward", 4 * each, uses=(9,)), exchange(4 * MEGABYTE, after=(0,), uses=(9,))]
    assert seconds(apart) == 8 * each
    assert seconds(work) == 4 * each


def test_an_urgent_exchange_overtakes():
    """The first layer's gradient is needed first: the next forward pass hides the others' exchange."""
    each = 2 * MEGABYTE / 1e9

    def layers(urgent):
        return [
            Work("forward", 4 * each, uses=(0,)),
            Work("backward", each, after=(0,), uses=(1,)),
            exchange(16 * MEGABYTE, after=(1,), uses=(1,)),
            exchange(2 * MEGABYTE, after=(1,), uses=(0,), priority=urgent),
        ]

    assert seconds(layers(1)) == 10 * each
    assert seconds(layers(-1)) == 14 * each


def test_messages_cost_time_of_their_own():
    """The limit of a thousand ranks: each gets a message of each other."""
    few, many = (
        predict(
            [exchange(uses=(0,))], ranks, 0.0, 1e12, cores=2, threads=1, costs=Costs(0, 1e-5, 0, 0, 0)
        ).seconds
        for ranks in (8, 1000)
    )
    assert few == pytest.approx(14e-5, rel=0.2)
    assert many == pytest.approx(1998e-5, rel=0.01)


@pytest.mark.parametrize(("nbytes", "wakes"), [(1000, 2), (MEGABYTE, 4), (2 * MEGABYTE, 4)])
def test_the_thread_of_communication_wakes_four_times_for_what_is_not_small(nbytes, wakes):
    """Between two ranks also where the array goes in one phase."""
    work = [exchange(nbytes, uses=(0,))]
    costs = Costs(0, 0, 0, 0, 1e-3)
    found = predict(work, 2, 0.0, 1e12, cores=2, threads=1, costs=costs).seconds
    assert found == pytest.approx(wakes * 1e-3, rel=0.01)


@tj.jit
def step(w, x):
    loss, gradient = tj.value_and_grad(lambda w: (tj.tanh(x @ w[0]) @ w[1]).sum())(w)
    for layer, change in zip(w, tj.distributed.all_reduce(gradient, op="mean"), strict=True):
        layer -= 0.01 * change
    return loss


def test_a_step_is_measured_as_it_runs_on_ranks():
    w, x = [tj.ones((16, 64)), tj.ones((64, 2))], tj.ones((32, 16))
    measured = tj.distributed.measure(step, w, x, repeats=5)
    kinds = [work.kind for work in measured.work]
    assert kinds.count("exchange") == 1
    assert kinds.count("agree") == 1
    assert measured.nbytes == 4 * (16 * 64 + 64 * 2)
    assert measured.seconds > 0
    assert tj.distributed.size() == 1
    eight, many = (measured.predict(n, latency=1e-3, bandwidth=1e9) for n in (8, 1000))
    assert eight.alone < 1e-3 < eight.seconds < many.seconds
    assert 0 < many.efficiency < eight.efficiency < 1


def test_ranks_that_are_pretended_have_the_same_gradients():
    """A mean over equal ranks is what one rank computes."""
    made = []
    for measured in (True, False):
        w, x = [tj.ones((4, 4)) / 4, tj.ones((4, 2))], tj.ones((3, 4))
        if measured:
            tj.distributed.measure(step, w, x, repeats=2)
        else:
            for _ in range(3):
                step(w, x)
        made.append([layer.tolist() for layer in w])
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tj.distributed.measure(len), "expected a jitted function, got builtin_function_or_method"),
        (lambda: tj.distributed.measure(tj.jit(lambda x: x + 1), tj.ones(2)), "exchanges nothing"),
        (lambda: tj.distributed.Step("s", []).predict(0, 1e-4, 1e9), "ranks=0"),
        (lambda: tj.distributed.Step("s", []).predict(2, 1e-4, 0.0), "bandwidth=0.0"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, told):
    with pytest.raises(ArgumentError, match=told) as caught:
        call()
    assert "test_simulation.py" in str(caught.value)


PROGRAM = """
import sys
import tracejit as tj

tj.distributed.init()
assert tj.distributed.size() == 2

@tj.jit
def step(w, x):
    w -= tj.distributed.all_reduce((x * w).sum(axis=0), op="mean")

w = tj.ones(1000)
for _ in range(int(sys.argv[1])):
    step(w, tj.ones((8, 1000)))
print("ran", sys.argv[1])
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A folder with the program, in which the command line is given."""
    file = tmp_path / "train_on_ranks.py"
    file.write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return file


@pytest.mark.parametrize("given", [["train_on_ranks.py"], ["-m", "train_on_ranks"], ["-c", PROGRAM]])
def test_a_program_is_simulated(given, program, capsys):
    assert main(["simulate", "-n", "2,64", "--link", "1e-4,1e9", "--cores", "2", *given, "4"]) == 0
    out = capsys.readouterr().out
    assert "ran 4" in out
    assert "3.9 KiB exchanged" in out
    rows = [line.split() for line in out.splitlines()[-2:]]
    assert [row[0] for row in rows] == ["2", "64"]
    assert float(rows[0][1]) < float(rows[1][1])
    assert tj.distributed.size() == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["train_on_ranks.py"], "no recorded step of train_on_ranks.py exchanges anything"),
        (["none.py"], "there is no program none.py"),
        (["-m", "no_such_module"], "there is no module no_such_module"),
        (["-m"], "expected a module after -m"),
        (["-c"], "expected a text after -c"),
        ([], "expected numbers of ranks"),
        (["-n", "x", "train_on_ranks.py"], "expected numbers of ranks"),
    ],
)
def test_what_cannot_be_simulated_is_refused(command, told, program, capsys):
    program.write_text("import tracejit as tj\ntj.ones(3).wait()\n")
    assert main(["simulate", *command]) == 1
    assert told in capsys.readouterr().err


def test_ranks_that_are_not_alike_are_refused():
    @tj.jit
    def step(x):
        tj.distributed.send(x + 1, to=1)
        return tj.distributed.all_reduce(x * 2)

    with pytest.raises(ArgumentError, match="send and receive are not simulated"):
        tj.distributed.measure(step, tj.ones(3))


def test_groups_of_ranks_are_refused():
    @tj.jit
    def step(x, group):
        return tj.distributed.all_reduce(x * 2, group=group)

    group = tj.distributed.split(0)
    with pytest.raises(ArgumentError, match="in groups of ranks are not simulated"):
        tj.distributed.measure(step, tj.ones(3), group)
