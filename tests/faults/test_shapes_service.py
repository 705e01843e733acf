"""SIGKILL of a service in a turn that does a job: it finishes the turn by itself, with the team of the job."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from massmem.core.events import AnswerSubmitted, TurnCompleted, TurnResumed, TurnStarted
from tests.faults.test_killed_turns_team import JOB
from tests.faults.test_turn_kill import read_log
from tests.support.service import Service, StartService, make_agent, make_config, start_service, wait_until

__all__ = ["start_service"]

pytestmark = pytest.mark.slow


def test_a_service_that_was_killed_finishes_the_job_by_itself(tmp_path: Path, start_service: StartService) -> None:
    jobs = tmp_path / "home" / ".massmem" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "ours.yaml").write_text(JOB)
    items = '{"items": [{"title": "The mill is old"}, {"title": "Nobody owns a boat"}]}'
    script = {"items": items, "present": {"text": "Two.", "delay": 3}}
    service = start_service(make_config(*(make_agent(name, "An answer.", **script) for name in ("ann", "ben", "cyd"))))
    body = {"message": "why?", "session_id": "s", "job": "ours", "agent": "ben"}
    thread = start(service, body)
    wait_until(lambda: any(isinstance(e, AnswerSubmitted) for e in read_log(service.home)))
    service.kill()
    thread.join(60)
    assert not [e for e in read_log(service.home) if isinstance(e, TurnCompleted)]

    service.start()
    wait_until(lambda: any(isinstance(e, TurnCompleted) for e in read_log(service.home)))

    log = read_log(service.home)
    (started,) = [e for e in log if isinstance(e, TurnStarted)]
    resumed = [e for e in log if isinstance(e, TurnResumed)]
    assert started.variation == {"job": "ours", "agent": "ben"} and started.job == "ours"
    assert [(list(e.agents), e.shape) for e in (started, *resumed)] == [(["first", "second"], "union")] * 2
    assert sorted(e.agent_id for e in log if isinstance(e, AnswerSubmitted)) == ["first", "second"]


def start(service: Service, body: dict[str, str]) -> threading.Thread:
    """Ask in a thread, whose connection breaks."""

    def ask() -> None:
        with suppress(requests.ConnectionError):
            service.client("alice").post("/api/v1/chat", body)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread
