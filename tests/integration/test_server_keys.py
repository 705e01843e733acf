"""API keys at a real service: made and revoked by the command line, valid wherever a token is."""

import json
import sqlite3
from contextlib import closing

from tests.support.cli import call_massmem, massmem
from tests.support.service import Client, Service, StartService, make_config, make_token, wait_until


def run_key_command(service: Service, *arguments: str) -> str:
    ran = massmem("key", *arguments, "--config", str(service.config_file), env={"HOME": str(service.home)})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


def create_key(service: Service, *options: str) -> tuple[Client, str]:
    """Return a client with a new key, and the key's id."""
    key = json.loads(run_key_command(service, "create", "--json", *options))
    return Client(service.url, key["key"]), key["id"]


def test_key_acts_as_its_user_until_it_is_revoked_at_every_process(start_service: StartService) -> None:
    first = start_service(make_config())
    second = start_service(make_config())
    alice, key_id = create_key(first, "--sub", "alice", "--name", "laptop")
    assert alice.chat("Why?", "s").json()["response"] == "It is blue."
    assert first.client("alice").list_sessions() == ["s"]
    elsewhere = Client(second.url, alice.token)
    assert elsewhere.list_sessions() == ["s"]
    bob, _ = create_key(first, "--sub", "bob")
    assert bob.get("/api/conversation/s").status_code == 404
    assert run_key_command(first, "revoke", key_id) == ""
    for client in (alice, elsewhere):
        refused = client.get("/api/conversations")
        assert refused.status_code == 401
        assert "invalid_token" in refused.headers["WWW-Authenticate"]
        assert client.token not in refused.text
    assert bob.get("/api/conversations").status_code == 200


def test_scope_of_a_key_is_that_of_a_token(start_service: StartService) -> None:
    service = start_service(make_config())
    scraper, _ = create_key(service, "--sub", "scraper", "--scope", "metrics")
    user, _ = create_key(service, "--sub", "carl")
    assert scraper.get("/metrics").status_code == 200
    assert user.get("/metrics").status_code == 403


def test_expired_and_made_up_keys_are_refused(start_service: StartService) -> None:
    service = start_service(make_config())
    brief, _ = create_key(service, "--sub", "dora", "--ttl", "1s")
    wait_until(lambda: brief.get("/api/conversations").status_code == 401, 30)
    for key in ("sk-massmem-", f"sk-massmem-{'0' * 64}", f"sk-massmem-{make_token('dora')}", brief.token[:-1]):
        assert Client(service.url, key).get("/api/conversations").status_code == 401


def test_key_is_stored_and_logged_nowhere(start_service: StartService) -> None:
    service = start_service(make_config())
    client, key_id = create_key(service, "--sub", "erin")
    assert client.chat("Why?").status_code == 200
    assert run_key_command(service, "list").split()[:3] == [key_id, "erin", f"...{client.token[-4:]}"]
    with closing(sqlite3.connect(service.home / ".massmem" / "massmem.db")) as connection:
        assert client.token not in "\n".join(connection.iterdump())
    assert client.token not in service.log.read_text()


def test_commands_refuse_what_makes_no_key() -> None:
    for arguments, complaint in (
        (("create", "--sub", "x", "--ttl", "0s"), b"a second at least"),
        (("create", "--sub", " "), b"a subject has"),
        (("revoke", "key_0"), b"there is no key 'key_0'"),
    ):
        ran = call_massmem("key", *arguments, "--config", "@examples/scripted")
        assert ran.returncode == 2
        assert complaint in ran.stderr
