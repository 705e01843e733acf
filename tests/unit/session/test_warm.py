from massmem.session.warm import Warm


def test_what_is_taken_out_is_with_one_user():
    warm: Warm[int] = Warm()
    warm.keep("a", 1)
    assert (warm.take("a"), warm.take("a"), warm.take("b")) == (1, None, None)
    warm.keep("a", 1)
    warm.keep("a", 2)
    assert (warm.take("a"), warm.take("a")) == (2, None)


def test_what_was_used_longest_ago_goes_first():
    warm: Warm[int] = Warm(most=2)
    for name, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        warm.keep(name, value)
    assert (warm.take("a"), warm.take("b"), warm.take("c")) == (3, None, 4)


def test_what_is_kept_does_not_weigh_more_than_it_may():
    warm: Warm[int] = Warm(heaviest=10)
    for name, weight in (("a", 4), ("b", 4), ("a", 5), ("c", 6)):
        warm.keep(name, weight, weight)
    assert (warm.take("b"), warm.take("a"), warm.take("c")) == (None, None, 6)
    warm.keep("d", 11, 11)
    assert warm.take("d") is None
    warm.keep("e", 10, 10)
    assert warm.take("e") == 10
