from massmem.core.messages import Usage

STEPS = Usage(70, 20, 10, 2, cost=0.2, reasoning=5, cache_written=3, saved=0.01)
PRESENTATION = Usage(30, 10, 20, 1, cost=0.1, reasoning=4, cache_written=2, saved=0.02)


def test_sum_less_one_part_is_the_other_part():
    assert (STEPS + PRESENTATION) - STEPS == PRESENTATION
    assert STEPS - Usage() == STEPS


def test_rest_of_an_estimated_sum_is_an_estimate():
    assert not (Usage(5, reported=False) - Usage(2)).reported


def test_rest_has_a_cost_only_when_it_is_known():
    assert (Usage(9) - Usage(4, cost=0.1)).cost is None
    assert (Usage(9, cost=0.3) - Usage(4)).cost is None
    assert (Usage(9, cost=0.3) - Usage()).cost == 0.3
