"""Gives a session a name, which its owner can use in place of its id."""

from massmem.core.errors import InputError
from massmem.core.ids import check_session_name
from massmem.core.records import Owner, SessionFilter, SessionRecord
from massmem.store.ports import SessionStore


async def rename_session(store: SessionStore, session: SessionRecord, title: str) -> SessionRecord:
    """Give a session a title; return the session as it is then.

    Raises:
        InputError: the title cannot be a name, or is the title or the id of another session of the owner.
        StoreError
    """
    title = check_session_name(" ".join(title.split()))
    owner = Owner(session.user_id)
    same_title = [listed.session for listed in await store.find_sessions(SessionFilter(title=title, owner=owner), 2)]
    same_id = await store.get_session(title)
    for other in [*same_title, *([same_id] if same_id and same_id.user_id == session.user_id else [])]:
        if other.session_id != session.session_id:
            raise InputError(
                f"another session is called {title!r}: {other.session_id}", "choose another name, or rename that one"
            )
    await store.rename_session(session.session_id, title)
    return session.model_copy(update={"title": title})
