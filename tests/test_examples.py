"""Examples that need nothing but tracejit."""

from examples import ensemble


def test_ensemble():
    first, last, spread = ensemble.main(steps=120)
    assert last.shape == (ensemble.MEMBERS,)
    assert last.mean() < first.mean() / 5
    assert len(set(first.tolist())) == ensemble.MEMBERS
    assert spread[1] > 2 * max(spread[0], spread[2])
    assert ensemble.train.cache_info().traces == 1
