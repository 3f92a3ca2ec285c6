"""The fleet's pages in the admin."""

from . import keys, records, vaults

__all__ = ["keys", "records", "vaults"]
