"""Every example runs, and shows what it says; each in this process, with what it prints thrown away."""

import importlib.util
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(request):
    """The module of an example, named as the test is."""
    name = request.node.name.removeprefix("test_")
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replays(function):
    """Whether a traced function was recorded once, and replayed ever after."""
    info = function.cache_info()
    return info.traces == 1 and info.replays > 0 and "piecewise" not in function.explain()


def test_data_parallel(example, tmp_path):
    losses, digest = example.main([])
    assert losses[-1] < 0.6 < 2 < losses[0]
    example.main(["--epochs", "1", "--folder", str(tmp_path)])
    rest, again = example.main(["--folder", str(tmp_path)])
    assert again == digest
    assert rest == losses[16:]


def test_gpt(example):
    losses, text = example.main()
    assert losses[0] > 3.5
    assert losses[-1] < 1.9
    assert text.startswith("Simple")
    assert len(text) == 126
    assert replays(example.train_step)
    assert replays(example.next_character)


def test_resnet(example):
    accuracy, same = example.main()
    assert accuracy > 0.85
    assert same == accuracy
    assert replays(example.train_step)


def test_vae(example):
    losses, new = example.main()
    assert losses[-1] < 27 < losses[0]
    assert new.shape == (6, 8, 8)
    assert 0 <= new.min() < 0.05
    assert 0.8 < new.max() <= 1
    assert replays(example.train_step)


def test_q_learning(example):
    lengths = example.main()
    assert lengths[0] < 40
    assert max(lengths) > 120
    assert replays(example.step)


def test_graphs(example):
    assert min(example.main()) > 0.85
    assert replays(example.train_step)


def test_gaussian_process(example):
    fitted, errors, inside = example.main()
    assert abs(fitted["period"] - 12.4) < 0.2
    assert abs(fitted["noise"] - 0.2) < 0.05
    assert abs(errors).max() < 3
    assert 0.9 < inside < 0.99
    assert replays(example.fit_step)


def test_kalman(example):
    fitted, by_measurement, by_filter = example.main()
    assert 0.2 < fitted["push"] < 0.5
    assert 1.7 < fitted["blur"] < 2.3
    assert by_filter < 0.87 * by_measurement
    assert replays(example.track)
    assert replays(example.fit_step)


def test_kmeans(example):
    assert min(example.main()) > 0.95
    assert replays(example.improve)
    assert replays(example.first_centres)


def test_sweep(example):
    found, again = example.main()
    assert found == again
    assert max(found) > 0.9
    assert min(found) < max(found)
    info = example.train_step.cache_info()
    assert info.signatures == 1
    assert info.replays > 2 * len(found)


def test_waves(example):
    lost, drift, true, found = example.main()
    assert abs(lost) < 1e-13
    assert drift < 0.02
    assert abs(found - true).max() < 0.3
    assert replays(example.tick)
    assert replays(example.search_step)


def test_ensemble(example):
    first, last, spread = example.main(steps=120)
    assert last.shape == (example.MEMBERS,)
    assert last.mean() < first.mean() / 5
    assert len(set(first.tolist())) == example.MEMBERS
    assert spread[1] > 2 * max(spread[0], spread[2])
    assert replays(example.train)


def test_pipeline(example):
    losses, same, schedule = example.main([])
    assert losses[-1] < 0.1 < 2 < losses[0]
    assert same
    first, second = ([n for n, t in enumerate(schedule.tasks) if t.lane == lane] for lane in (0, 1))
    products = [[n for n in lane if "matmul" in schedule.tasks[n].name] for lane in (first, second)]
    free = [(a, b) for a in products[0] for b in products[1] if not schedule.path(a, b) | schedule.path(b, a)]
    assert len(free) > 10  # of different parts: they run at once


def test_stale_sgd(example):
    found = example.main(["--steps", "60"])
    assert found["sync"] == found[0]
    assert found[3][1] != found[0][1]
    for losses, _ in found.values():
        assert losses[-1] < 0.3 < 2 < losses[0]


def test_elastic(example, tmp_path):
    first, digest = example.main([str(tmp_path)])
    assert first == 0
    assert example.main([str(tmp_path)]) == (example.STEPS, digest)
