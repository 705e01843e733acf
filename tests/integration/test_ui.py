"""`massmem ui`: one user on this machine, let in by an address that works once."""

import hmac
import json
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from tests.support.cli import massmem, script, start, write_team
from tests.support.configs import read_example
from tests.support.file_server import FileServer, serving
from tests.support.forked import ForkedServer
from tests.support.json_server import serve_posts
from tests.support.page import FROM_PAGE, MODEL, Page, StartPage, hide_models
from tests.support.service import make_agent, wait_until

CONFIG = {"agents": [make_agent("ann", "It is blue.")]}


def test_address_works_once(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    visitor = page.enter()
    assert visitor.get(f"{page.url}/api/v1/about", timeout=60).json()["user"] is None
    again = requests.post(f"{page.url}/page/enter", json={"token": page.token}, headers=FROM_PAGE, timeout=60)
    assert again.status_code == 401
    (cookie,) = visitor.cookies
    assert cookie.name == f"massmem-{page.port}"
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"
    assert cookie.value != page.token


def test_odd_tokens_are_refused(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    for token in ("\ud800", "ü", "a\x00b", "x" * 10_000, ""):
        answer = requests.post(f"{page.url}/page/enter", json={"token": token}, headers=FROM_PAGE, timeout=60)
        assert answer.status_code in (401, 422), (token[:9], answer.text)
    page.enter()


def test_cookie_is_of_no_use_to_pages_of_others(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    visitor = page.enter()
    cookies = visitor.cookies.get_dict()
    assert requests.get(f"{page.url}/api/v1/about", cookies=cookies, timeout=60).status_code == 403
    body = {"token": page.token}
    assert requests.post(f"{page.url}/page/enter", json=body, timeout=60).status_code == 403
    visitor.post(f"{page.url}/page/leave", json={}, timeout=60)
    assert requests.get(f"{page.url}/api/v1/about", cookies=cookies, headers=FROM_PAGE, timeout=60).status_code == 401


def test_conversation_goes_on_with_the_team_of_its_own_configuration(start_page: StartPage, tmp_path: Path) -> None:
    page = start_page(CONFIG)
    visitor, home = page.enter(), {"HOME": str(page.home)}
    (tmp_path / "other").mkdir()
    other = write_team(tmp_path / "other", script("Lisbon has seven hills."))
    assert massmem("--config", other, "How many hills?", env=home).returncode == 0
    assert massmem("--config", other, "How many rivers?", env=home).returncode == 0

    listed = visitor.get(f"{page.url}/api/v1/sessions", timeout=60).json()["sessions"]
    ids = {session["title"]: session["session_id"] for session in listed}

    def ask(title: str) -> str:
        body = {"message": "Really?", "session_id": ids[title]}
        return visitor.post(f"{page.url}/api/v1/chat", json=body, timeout=60).json()["response"]

    def read(title: str) -> dict[str, Any]:
        return visitor.get(f"{page.url}/api/v1/sessions/{ids[title]}", timeout=60).json()

    assert (read("How many hills?")["note"], read("How many hills?")["team"]["name"]) == ("", None)
    assert ask("How many hills?") == "Lisbon has seven hills."
    Path(other).write_text("agents: 3\n")
    assert ask("How many hills?") == "Lisbon has seven hills."  # it is open
    again = start_page(CONFIG)
    visitor, page = again.enter(), again
    assert "cannot be used" in read("How many hills?")["note"]
    Path(other).unlink()
    assert read("How many rivers?")["note"].endswith(f"{other}, with which this conversation began, is not there.")
    assert ask("How many rivers?") == "It is blue."
    assert read("How many rivers?")["note"] == ""


def test_page_shows_the_conversations_of_the_command_line_and_makes_some(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    visitor = page.enter()
    home = {"HOME": str(page.home)}
    config = str(page.home.parent / "page.yaml")
    asked = massmem("Why is the sky blue?", "--config", config, env=home)
    assert asked.returncode == 0, asked.stderr
    answer = visitor.post(f"{page.url}/api/v1/chat", json={"message": "Is it?", "session_id": "browser"}, timeout=60)
    assert answer.json()["response"] == "It is blue."
    listed = visitor.get(f"{page.url}/api/v1/sessions", timeout=60).json()["sessions"]
    assert [session["title"] for session in listed] == ["Is it?", "Why is the sky blue?"]
    in_terminal = massmem("--list-sessions", env=home).stdout.decode()
    assert "browser" in in_terminal
    deleted = visitor.delete(f"{page.url}/api/ai-memory/conversations/browser", timeout=60)
    assert deleted.status_code == 200, deleted.text
    # At once, or as soon as nobody else has the memories open.
    wait_until(lambda: "browser" not in massmem("--list-sessions", env=home).stdout.decode())


def test_users_of_the_service_are_not_seen(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    visitor = page.enter()
    home = {"HOME": str(page.home)}
    created = massmem("key", "create", "--sub", "alice", "--config", str(page.home.parent / "page.yaml"), env=home)
    alice = {"Authorization": f"Bearer {created.stdout.decode().strip()}"}
    body = {"message": "Why?", "session_id": "hers"}
    assert requests.post(f"{page.url}/api/v1/chat", json=body, headers=alice, timeout=60).status_code == 200
    assert visitor.get(f"{page.url}/api/v1/sessions", timeout=60).json()["sessions"] == []
    assert visitor.get(f"{page.url}/api/v1/sessions/hers", timeout=60).status_code == 404


def test_key_lets_a_user_of_the_service_in(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    home = {"HOME": str(page.home)}
    created = massmem("key", "create", "--sub", "alice", "--config", str(page.home.parent / "page.yaml"), env=home)
    page.token = created.stdout.decode().strip()
    assert page.enter().get(f"{page.url}/api/v1/about", timeout=60).json()["user"] == "alice"


def test_page_loads_nothing_from_elsewhere(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    shell = requests.get(page.url, timeout=60)
    policy = shell.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for name in ("app.js", "page.css", "vendor/preact.js", "icon.svg"):
        file = requests.get(f"{page.url}/page/{name}", timeout=60)
        assert file.status_code == 200
        again = requests.get(f"{page.url}/page/{name}", headers={"If-None-Match": file.headers["ETag"]}, timeout=60)
        assert again.status_code == 304
    assert requests.get(f"{page.url}/page/../app.py", timeout=60).status_code == 404


def test_cookie_of_one_page_is_of_no_use_at_another_service_on_its_store(start_page: StartPage) -> None:
    page, other = start_page(CONFIG), start_page(CONFIG)
    (cookie,) = page.enter().cookies
    about = f"{other.url}/api/v1/about"
    for value, status in ((cookie.value, 401), (other.enter().cookies[f"massmem-{other.port}"], 200)):
        cookies = {f"massmem-{other.port}": str(value)}
        assert requests.get(about, cookies=cookies, headers=FROM_PAGE, timeout=60).status_code == status


def test_browser_gets_a_file_that_only_this_user_can_read(tmp_path: Path) -> None:
    """Every user of a machine can read the arguments of all processes."""
    seen = tmp_path / "seen"
    program = tmp_path / "browser"
    lines = ["#!/bin/sh", f'echo "$1" > {seen}.part', f"mv {seen}.part {seen}", "sleep 600 & wait"]
    program.write_text("\n".join(lines))
    program.chmod(0o700)
    environment = os.environ | {"HOME": str(tmp_path), "BROWSER": f"{program} %s", "DISPLAY": ":99"}
    out = tmp_path / "out"
    line = ("ui", "--config", write_team(tmp_path, script()))
    process = ForkedServer(line, environment, tmp_path / "err", out)
    try:
        wait_until(seen.exists)
        url, _, token = out.read_text().strip().partition("/#token=")
        file = Path(urlsplit(seen.read_text().strip()).path)
        assert seen.read_text().startswith("file://")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f'content="0; url={url}/#token={token}"' in file.read_text()
        parent, shown = psutil.Process(process.pid), list[str]()
        for one in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):  # it has ended meanwhile
                shown.append(" ".join(one.cmdline()))
        assert any(str(program) in line for line in shown)
        assert not [line for line in shown if token in line]
        entered = requests.post(f"{url}/page/enter", json={"token": token}, headers=FROM_PAGE, timeout=60)
        assert entered.status_code == 204
        assert not file.exists()
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        process.send_signal(signal.SIGINT)
        process.wait(120)


def test_file_of_an_address_that_nobody_used_goes_with_the_service(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "BROWSER": "/bin/true %s", "DISPLAY": ":99"}
    line = ("ui", "--config", write_team(tmp_path, script()))
    process = ForkedServer(line, environment, tmp_path / "err")
    wait_until(lambda: bool(list((tmp_path / ".massmem").glob("*.html"))))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    assert not list((tmp_path / ".massmem").glob("*.html"))


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """From the interpreter's start, as the user runs it."""
    config = write_team(tmp_path, script())
    process = start("ui", "--config", config, "--no-browser")
    assert process.stdout is not None
    url, _, _ = process.stdout.readline().decode().partition("/#token=")
    assert requests.get(url, timeout=60).status_code == 200
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0
    assert stderr == b"massmem: the address works once, on this machine; Ctrl-C ends it\n"


def sign_in(page: Page, key: str) -> int:
    """Come in as a browser does that has been in before; return the status."""
    challenge = requests.get(page.url, timeout=60).headers["X-Massmem-Challenge"]
    proof = hmac.digest(bytes.fromhex(key), challenge.encode(), "sha256").hex()
    return requests.post(f"{page.url}/page/enter", json={"token": proof}, headers=FROM_PAGE, timeout=60).status_code


def test_page_is_at_the_same_port_after_a_restart_and_the_browser_comes_back(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    entered = requests.post(f"{page.url}/page/enter", json={"token": page.token}, headers=FROM_PAGE, timeout=60)
    key = entered.headers["X-Massmem-Key"]
    old = requests.get(page.url, timeout=60).headers["X-Massmem-Challenge"]
    page.stop()
    again = start_page(CONFIG)
    assert again.port == page.port
    cookies = {f"massmem-{page.port}": entered.cookies[f"massmem-{page.port}"]}
    about = f"{again.url}/api/v1/about"
    assert requests.get(about, cookies=cookies, headers=FROM_PAGE, timeout=60).status_code == 401
    assert sign_in(again, key) == 204
    assert sign_in(again, "ab" * 32) == 401
    replayed = hmac.digest(bytes.fromhex(key), old.encode(), "sha256").hex()
    answer = requests.post(f"{again.url}/page/enter", json={"token": replayed}, headers=FROM_PAGE, timeout=60)
    assert answer.status_code == 401
    beside = start_page(CONFIG)  # while the port is in use
    assert beside.port != again.port
    assert sign_in(beside, key) == 401


def test_page_sets_up_a_team_while_nothing_is_set_up(
    start_page: StartPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_models(monkeypatch, tmp_path)
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ready"}, "finish_reason": "stop"}]}
    statuses = [200, 400]  # the first try fails
    body = json.dumps(reply).encode()
    with serve_posts(lambda _: (statuses.pop(), "application/json", body), ["qwen3:8b"]) as url:
        monkeypatch.setenv("OLLAMA_HOST", url.removeprefix("http://"))
        page = start_page(None)
        visitor = page.enter()
        assert requests.get(f"{page.url}/api/v1/setup", headers=FROM_PAGE, timeout=60).status_code == 401
        assert visitor.get(f"{page.url}/api/v1/about", timeout=60).json()["first_start"]
        offers = visitor.get(f"{page.url}/api/v1/setup", timeout=60).json()
        [team] = [label for label in offers["choices"] if label.startswith("qwen3:8b of Ollama")]
        for wrong in ({"key": "sk-1", "provider": "nobody"}, {"team": team}):
            assert visitor.post(f"{page.url}/api/v1/setup", json=wrong, timeout=120).status_code == 400
        assert not (page.home / ".massmem" / "config.yaml").exists()
        assert not (page.home / ".massmem" / "keys.env").exists()
        assert visitor.post(f"{page.url}/api/v1/setup", json={"team": team}, timeout=120).status_code == 204
        assert "qwen3:8b" in (page.home / ".massmem" / "config.yaml").read_text()
        key = str(page.key)

        def is_back() -> bool:
            try:
                return sign_in(page, key) == 204
            except requests.ConnectionError:
                return False

        wait_until(is_back)
        assert page.process.poll() is None


def test_download_is_stopped_and_goes_on_where_it_was(
    start_page: StartPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_models(monkeypatch, tmp_path)
    with serving(FileServer({MODEL: bytes(40_000_000)}, delay=0.05)) as hub, ThreadPoolExecutor(1) as pool:
        monkeypatch.setenv("HF_ENDPOINT", hub.base)
        page = start_page(None)
        visitor = page.enter()

        def read() -> dict[str, Any]:
            return visitor.get(f"{page.url}/api/v1/setup", timeout=60).json()

        def download() -> str:
            return visitor.post(f"{page.url}/api/v1/setup", json={}, timeout=120).text

        first = pool.submit(download)
        wait_until(lambda: (read()["fetched"] or 0) > 100_000)
        assert visitor.post(f"{page.url}/api/v1/setup/stop", timeout=60).status_code == 204
        assert "the download was stopped" in first.result(60)
        offers = read()
        assert offers["fetched"] is None
        assert offers["kept"] > 100_000
        pool.submit(download)
        wait_until(lambda: (read()["fetched"] or 0) > offers["kept"])
        assert hub.requests[-1][1].startswith("bytes=")
        page.stop()  # not only when it is whole, which would take for long


def test_one_question_changes_who_answers_it(start_page: StartPage, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "pumps.md").write_text("The pump P-17 is in hall H-412.")
    read = {"call": [{"tool": "read_file", "arguments": {"path": "pumps.md"}}], "text": "No folder."}
    ben = make_agent("ben", "", answer=[read, "I have seen: {result}"] * 9)
    page = start_page({"agents": [make_agent("ann", "It is blue."), ben], "memory": {"enabled": False}})
    visitor = page.enter()

    def ask(**changes: str) -> Any:
        body = {"message": "Where is P-17?", "session_id": "pumps", **changes}
        return visitor.post(f"{page.url}/api/v1/chat", json=body, timeout=60).json()

    assert ask(agent="ann")["response"] == "It is blue."
    assert ask(agent="ben")["response"] == "No folder."
    assert "H-412" in ask(agent="ben", folder=str(tmp_path / "notes"))["response"]
    assert "H-412" not in ask(agent="ben")["response"]
    assert "there is no agent 'eve'" in ask(agent="eve")["error"]
    assert "gone cannot be read" in ask(folder=str(tmp_path / "gone"))["error"]
    assert "the provider of the model 'nonsense' is not known" in ask(model="nonsense")["error"]
    assert "a program cannot be chosen here" in ask(model="acp/x")["error"]
    assert ask(agent="ann")["response"] == "It is blue."


def test_question_names_a_job_or_a_mode(start_page: StartPage) -> None:
    page = start_page(read_example("decide"))
    jobs = page.home / ".massmem" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "names.yaml").write_text("summary: Names for a thing.\nshape: union\n")
    (jobs / "wrong.yaml").write_text("summary: x\nshapes: union\n")
    visitor = page.enter()
    listed = visitor.get(f"{page.url}/api/v1/about", timeout=60).json()["jobs"]
    assert {"decide", "premortem", "names"} <= {job["name"] for job in listed}
    assert {"name": "names", "summary": "Names for a thing."} in listed
    assert "wrong" not in {job["name"] for job in listed}

    def ask(**changes: str) -> Any:
        body = {"message": "Where do we keep orders?", "session_id": "orders", **changes}
        return visitor.post(f"{page.url}/api/v1/chat", json=body, timeout=60).json()

    decided = ask(job="decide")
    assert (decided["job"], decided["shape"], decided["notices"]) == ("decide", "decide", [])
    assert "| PostgreSQL |" in decided["response"]
    alone = ask(job="decide", agent="ada")
    assert [agent["id"] for agent in alone["agents"]] == ["advocate", "sceptic", "operator"]
    assert "one model plays all roles (advocate, sceptic, operator)" in alone["notices"][0]
    assert ask(job="names")["shape"] == "union"
    assert (ask()["shape"], ask()["report"]) == ("vote", None)
    assert ask(mode="report")["report"]["made_from"] in ("answers", "votes")
    assert len(ask(mode="solo")["agents"]) == 1
    assert "there is no job 'decode' (did you mean 'decide'?), only brainstorm" in ask(job="decode")["error"]
    assert "there is no job '../names'" in ask(job="../names")["error"]
    assert ask(job="wrong")["error"] == "the file of the job wrong has mistakes"
    assert "mode" in ask(mode="loud")["error"]


def test_files_of_the_page_are_sent_compressed_and_asked_for_again_when_they_changed(start_page: StartPage) -> None:
    page = start_page(CONFIG)
    for name in ("app.js", "page.css", "vendor/katex.js", "vendor/fonts/KaTeX_Main-Regular.woff2"):
        answer = requests.get(f"{page.url}/page/{name}", timeout=60)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "no-cache"
        assert (answer.headers.get("Content-Encoding") == "gzip") == (not name.endswith("woff2")), name
        again = requests.get(f"{page.url}/page/{name}", headers={"If-None-Match": answer.headers["ETag"]}, timeout=60)
        assert (again.status_code, again.content) == (304, b"")
