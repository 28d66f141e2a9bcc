"""Reports and results in the formats people ask for: one module a format, each with a ``render``.

Nothing here reads a ledger, a clock or a locale. ``RENDERER_VERSION`` is raised where a change
gives other bytes for the same report or results; it is recorded where one is issued.
"""
