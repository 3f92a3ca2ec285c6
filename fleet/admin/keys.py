"""API keys: made here and shown once, limited, revoked."""

from __future__ import annotations

from django.contrib import admin
from django.template.response import TemplateResponse
from django.utils import timezone

from .. import keys
from ..events import record
from ..models import ApiKey, Event
from . import cells


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):
    change_list_template = "admin/fleet/apikey/list.html"
    list_display = ("name", "hint", "state", "owner", "requests_at_once", "tokens_a_day", "expires", "last_used")
    list_filter = ("owner", "created", "expires")
    search_fields = ("name", "hint", "owner__username")
    list_select_related = ("owner",)
    show_full_result_count = False
    filter_horizontal = ("vaults",)
    readonly_fields = ("hint", "state", "created", "last_used")
    actions = ("revoke",)
    fieldsets = (
        (None, {"fields": ("name", "owner", "expires")}),
        ("Limits", {"fields": ("requests_at_once", "tokens_a_day", "vaults")}),
        ("History", {"fields": ("hint", "state", "created", "last_used")}),
    )

    def changelist_view(self, request, extra_context=None):
        extra = {"title": "API keys", "no_key_yet": not ApiKey.objects.exists()}
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def get_fieldsets(self, request, obj=None):
        return super().get_fieldsets(request, obj)[: None if obj else 2]

    def get_readonly_fields(self, request, obj=None):
        """A key keeps its name: what it has used is kept under it, and so is what its limits are held against."""
        return (*self.readonly_fields, "name") if obj else self.readonly_fields

    @admin.display(description="state")
    def state(self, row: ApiKey):
        if row.revoked is not None:
            return cells.badge("revoked", "bad", str(row.revoked))
        if row.expires is not None and row.expires <= timezone.now():
            return cells.badge("expired", "off", str(row.expires))
        return cells.badge("valid", "good")

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request, queryset):
        for row in queryset:
            keys.revoke(row)
        self.message_user(request, "They are refused from now on.")

    def save_model(self, request, obj, form, change):
        secret = None if change else keys.mint(obj)
        super().save_model(request, obj, form, change)
        request.minted_key = secret
        done = "changed" if change else "made"
        record(Event.Kind.KEY, f"The key {obj.name} was {done} by {request.user}.")

    def delete_model(self, request, obj):
        super().delete_model(request, obj)
        record(Event.Kind.KEY, f"The key {obj.name} was deleted by {request.user}.")

    def delete_queryset(self, request, queryset):
        names = ", ".join(queryset.values_list("name", flat=True))
        super().delete_queryset(request, queryset)
        record(Event.Kind.KEY, f"The keys {names} were deleted by {request.user}.")

    def response_add(self, request, obj, post_url_continue=None):
        """The only page that ever shows the key; it goes through no message and no session."""
        context = {**self.admin_site.each_context(request), "title": "The new key", "row": obj, "opts": self.opts}
        response = TemplateResponse(
            request, "admin/fleet/apikey/made.html", {**context, "secret": request.minted_key, "original": obj}
        )
        response["Cache-Control"] = "no-store"
        return response
