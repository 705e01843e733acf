"""What the service is compared with: FastAPI, PyJWT and SQLite with nothing around them.

python -m scripts.benches.bare_server DATABASE PORT SECRET
"""

import sqlite3
import sys
from typing import Annotated, Any

import jwt
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

MESSAGES = "CREATE TABLE messages (id INTEGER PRIMARY KEY, session, role, content, agent, confidence, created_at)"
INDEX = "CREATE INDEX of_session ON messages (session, id)"


def open_database(path: str) -> sqlite3.Connection:
    """Open it as durable as massmem's own store: a commit is on the disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def create_app(path: str, secret: str) -> FastAPI:
    app, database = FastAPI(), open_database(path)

    async def authenticate(request: Request) -> str:
        try:
            token = request.headers["authorization"].removeprefix("Bearer ")
            return jwt.decode(token, secret, algorithms=["HS256"], options={"require": ["exp", "sub"]})["sub"]
        except (KeyError, jwt.PyJWTError) as e:
            raise HTTPException(401) from e

    @app.get("/api/v1/chat/history/{session_id}")
    async def history(session_id: str, sub: Annotated[str, Depends(authenticate)], limit: int = 50) -> JSONResponse:
        rows = database.execute(
            "SELECT role, content, confidence, agent, created_at FROM messages WHERE session = ?"
            " ORDER BY id DESC LIMIT ?",
            (f"{sub}.{session_id}", limit),
        ).fetchall()
        messages = [_make_message(row) for row in reversed(rows)]
        return JSONResponse({"session_id": session_id, "messages": messages, "count": len(messages)})

    @app.post("/append")
    async def append(body: dict[str, Any], sub: Annotated[str, Depends(authenticate)]) -> JSONResponse:
        database.execute(
            "INSERT INTO messages (session, role, content, created_at) VALUES (?, 'user', ?, datetime())",
            (f"{sub}.{body['session_id']}", body["message"]),
        )
        return JSONResponse({"success": True})

    return app


def _make_message(row: tuple[Any, ...]) -> dict[str, Any]:
    role, content, confidence, agent, created_at = row
    fields = {
        "role": role,
        "content": content,
        "confidence": confidence,
        "agent": agent,
        "agent_id": agent,
        "timestamp": created_at,
    }
    return {name: value for name, value in fields.items() if value is not None}


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1], sys.argv[3]), port=int(sys.argv[2]), log_level="warning", access_log=False)
