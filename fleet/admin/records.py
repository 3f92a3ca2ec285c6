"""What happened: events and the request log. Read only, and fast with 100,000 rows."""

from __future__ import annotations

from django.contrib import admin

from ..models import Event, Generation
from . import cells


class RecordAdmin(admin.ModelAdmin):
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


@admin.register(Event)
class EventAdmin(RecordAdmin):
    list_display = ("time", "kind", "vault", "message")
    list_filter = ("kind", "time")
    search_fields = ("message", "vault")


@admin.register(Generation)
class GenerationAdmin(RecordAdmin):
    list_display = (
        *("time", "protocol", "vault", "client", "prompt_tokens", "cached_tokens", "generated_tokens"),
        *("queue", "prefill", "decode", "speed", "outcome"),
    )
    list_filter = ("protocol", "finish_reason", "vault", "time")
    search_fields = ("request_id", "client", "client_name", "vault", "error")

    @admin.display(description="queue", ordering="queue_ms")
    def queue(self, row: Generation):
        return _seconds(row.queue_ms + row.boot_ms)

    @admin.display(description="prefill", ordering="prefill_ms")
    def prefill(self, row: Generation):
        return _seconds(row.prefill_ms)

    @admin.display(description="decode", ordering="decode_ms")
    def decode(self, row: Generation):
        return _seconds(row.decode_ms)

    @admin.display(description="speed")
    def speed(self, row: Generation):
        return cells.speed(row.tokens_per_second)

    @admin.display(description="ended", ordering="finish_reason")
    def outcome(self, row: Generation):
        return cells.badge("error", "bad", row.error) if row.error else row.finish_reason


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s"
