"""Runs migrations on the connection that broker/database.py hands over, inside its transaction."""

from alembic import context

from jupyter_gpushare.broker.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
    transactional_ddl=True,
)
context.run_migrations()
