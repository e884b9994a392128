"""Carries out plans: each module does one kind of Action against the API server.

Every action here is idempotent and tied to the UIDs that the ledger names, so doing it twice, late, or from an old
leader does no harm. Nothing here decides, and nothing here retries beyond what the API client does by error class.
"""
