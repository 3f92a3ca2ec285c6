"""Usage by the user who owns the key: a key's sums move with it when it gets another owner."""

from __future__ import annotations

from django.db.models import OuterRef, QuerySet, Subquery

from .models import ApiKey, Usage


def with_user(rows: QuerySet[Usage]) -> QuerySet[Usage]:
    """`user`: the owner's name; None for addresses, keys without an owner and keys that are gone."""
    owner = ApiKey.objects.filter(name=OuterRef("client")).values("owner__username")[:1]
    return rows.annotate(user=Subquery(owner))
