"""Alembic's entry point. The caller has opened the connection and begun the transaction, see `run_migrations`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
