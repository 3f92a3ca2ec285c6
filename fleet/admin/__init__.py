"""The fleet's pages in the admin."""

from . import records, vaults

__all__ = ["records", "vaults"]
