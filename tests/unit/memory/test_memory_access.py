from massmem.core.events import now
from massmem.memory.access import may_see
from massmem.memory.persistent import USER, Memory, Scope
from massmem.session.owners import hash_user

EVERYWHERE = Scope("mine", "a", 1, all_sessions=True)


def remember(group: str) -> Memory:
    return Memory("1", "episode", "other", 1, USER, "a secret", ("m",), now(), group=group)


def test_all_sessions_are_those_without_a_user_of_the_service():
    assert may_see(EVERYWHERE, remember(""), won=False)
    assert may_see(EVERYWHERE, remember("project"), won=False)
    assert not may_see(EVERYWHERE, remember(hash_user("ann")), won=False)
    assert not may_see(EVERYWHERE, remember(f"{hash_user('ann')}:project"), won=False)


def test_user_of_the_service_sees_the_sessions_of_the_group():
    scope = Scope("mine", "a", 1, group=hash_user("ann"))
    assert may_see(scope, remember(hash_user("ann")), won=False)
    assert not may_see(scope, remember(hash_user("bob")), won=False)
