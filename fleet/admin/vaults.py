"""The list of vaults and one vault's page: to look at and to operate, never to edit; the files are the truth."""

from __future__ import annotations

import json
from dataclasses import asdict

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.core.exceptions import PermissionDenied
from django.db.models import Count, F, Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.urls import path, reverse
from django.utils.html import format_html

from .. import catalog, control, heats, outages, verification
from ..models import ApiKey, Vault
from ..tables import human_bytes
from . import cells


@admin.register(Vault)
class VaultAdmin(admin.ModelAdmin):
    list_display = ("vault", "standing", "kind", "size", "tokens", "used")
    list_filter = ("state", "quant", "model_type", "tokenizer_fit")
    search_fields = ("name", "model_type", "lineage", "description", "reason")
    search_help_text = "Id, model type, lineage, description or reason"
    list_per_page = 50
    show_full_result_count = False
    actions = ("switch_to", "read_again")
    change_list_template = "admin/fleet/vault/list.html"
    change_form_template = "admin/fleet/vault/page.html"
    fieldsets = (
        (None, {"fields": ("name", "state_badge", "why", "description", "lineage", "fit", "tokens", "speed")}),
        (
            "Architecture",
            {
                "fields": (
                    ("model_type", "quant", "format_version"),
                    ("hidden_layers", "moe_layers", "d_model"),
                    ("experts_per_layer", "top_k", "ffn_dim"),
                    ("heads", "kv_heads", "head_dim", "kept_width"),
                    ("vocab_size", "trained_context", "eos_ids"),
                    "assumed",
                )
            },
        ),
        (
            "Files",
            {
                "fields": (
                    ("vault_path", "vault_size"),
                    ("scout_path", "scout_size"),
                    ("record_size", "modified"),
                    "fingerprint",
                    ("tokenizer", "tokenizer_note"),
                )
            },
        ),
        ("History", {"fields": (("first_seen", "last_seen", "last_used"),)}),
        ("The scout's metadata", {"classes": ("collapse",), "fields": ("metadata_text",)}),
    )

    # --- rights: rows come from discovery ---------------------------------------------------------------------------

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False

    def has_delete_permission(self, request, obj=None):
        forgettable = obj is None or obj.state == Vault.State.MISSING
        return forgettable and super().has_delete_permission(request, obj)

    def get_deleted_objects(self, objs, request):
        """Only what is gone can be forgotten; the rest would come back with the next look."""
        objs = [vault for vault in objs if vault.state == Vault.State.MISSING]
        *found, protected = super().get_deleted_objects(objs, request)
        return *found, [*protected, *_holds(objs)]

    def delete_queryset(self, request, queryset):
        queryset.filter(state=Vault.State.MISSING).delete()

    def may_operate(self, request: HttpRequest) -> bool:
        return request.user.has_perm("fleet.change_vault")

    # --- cells ------------------------------------------------------------------------------------------------------

    @admin.display(description="id", ordering="name")
    def vault(self, row: Vault):
        if row.name == control.snapshot().model:
            return format_html("{} {}", row.name, cells.badge("active", "live", "The engine runs it now."))
        return row.name

    @admin.display(description="state", ordering="state")
    def state_badge(self, row: Vault):
        return cells.state(row)

    @admin.display(description="state", ordering="state")
    def standing(self, row: Vault):
        return format_html("{}<small class='smoe-note'>{}</small>", cells.state(row), row.reason)

    @admin.display(description="reason")
    def why(self, row: Vault):
        return row.reason or row.tokenizer_note or "-"

    @admin.display(description="model", ordering="model_type")
    def kind(self, row: Vault):
        if not row.top_k:
            return "-"
        parts = f"{row.moe_layers} x {row.experts_per_layer} experts, {row.top_k} a token"
        return format_html("{} {}<small class='smoe-note'>{}</small>", row.model_type, row.quant, parts)

    @admin.display(description="size", ordering="vault_bytes")
    def size(self, row: Vault):
        return format_html('<span class="smoe-figure">{}</span>{}', human_bytes(row.total_bytes), _note_of_fit(row))

    @admin.display(description="memory")
    def fit(self, row: Vault):
        return cells.fit(row, settings.SMOE.window, settings.SMOE.trunk_form)

    @admin.display(description="tokenizer", ordering="tokenizer_source")
    def tokens(self, row: Vault):
        return cells.tokenizer(row)

    @admin.display(description="speed", ordering="tokens_per_second")
    def speed(self, row: Vault):
        return cells.speed(row.tokens_per_second)

    @admin.display(description="last used", ordering="last_used")
    def used(self, row: Vault):
        if row.last_used is None:
            return "-"
        return format_html(
            "{}<small class='smoe-note'>{}</small>", naturaltime(row.last_used), cells.speed(row.tokens_per_second)
        )

    @admin.display(description="vault size")
    def vault_size(self, row: Vault):
        return human_bytes(row.vault_bytes)

    @admin.display(description="scout size")
    def scout_size(self, row: Vault):
        return human_bytes(row.scout_bytes)

    @admin.display(description="expert record")
    def record_size(self, row: Vault):
        return human_bytes(row.record_bytes) if row.record_bytes else "-"

    @admin.display(description="metadata")
    def metadata_text(self, row: Vault):
        return format_html("<pre>{}</pre>", json.dumps(row.metadata, indent=2, ensure_ascii=False))

    def get_fieldsets(self, request, obj=None):
        """Without what is empty: a file that cannot be read has no anatomy."""
        sets = super().get_fieldsets(request, obj)
        if obj is None:
            return sets
        hidden = {"Architecture"} if not obj.top_k else set()
        empty = {name for name in ("description", "lineage", "assumed", "tokenizer_note") if not getattr(obj, name)}
        if not (obj.reason or obj.tokenizer_note):
            empty.add("why")
        shown = [(title, told) for title, told in sets if title not in hidden]
        return [(title, {**told, "fields": _without(told["fields"], empty)}) for title, told in shown]

    # --- pages ------------------------------------------------------------------------------------------------------

    def changelist_view(self, request, extra_context=None):
        catalog.servable()  # looks at the disk where the last look is a while ago
        extra = {"may_operate": self.may_operate(request), "title": "Vaults"}
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def change_view(self, request, object_id, form_url="", extra_context=None):
        extra = {"may_operate": self.may_operate(request), "active": control.snapshot().model}
        return super().change_view(request, object_id, form_url, {**extra, **(extra_context or {})})

    def get_urls(self):
        view = self.admin_site.admin_view
        return [
            path("rescan/", view(self.rescan_view), name="fleet_vault_rescan"),
            path("unload/", view(self.unload_view), name="fleet_vault_unload"),
            path("<int:pk>/switch/", view(self.switch_view), name="fleet_vault_switch"),
            path("<int:pk>/warm/", view(self.warm_view), name="fleet_vault_warm"),
            path("<int:pk>/verify/", view(self.verify_view), name="fleet_vault_verify"),
            path("<int:pk>/live.json", view(self.live_view), name="fleet_vault_live"),
            *super().get_urls(),
        ]

    # --- operations -------------------------------------------------------------------------------------------------

    @admin.action(description="Switch to the selected vault")
    def switch_to(self, request, queryset):
        if queryset.count() != 1:
            self.message_user(request, "Select exactly one vault to switch to.", messages.WARNING)
            return None
        return self._operate(request, lambda: control.switch(queryset.get().name))

    @admin.action(description="Read the selected files again")
    def read_again(self, request, queryset):
        def work() -> str:
            queryset.update(signature="")
            return f"{control.rescan()}."

        return self._operate(request, work)

    def rescan_view(self, request: HttpRequest) -> HttpResponse:
        return self._posted(request, lambda: f"{control.rescan()}.")

    def unload_view(self, request: HttpRequest) -> HttpResponse:
        return self._posted(request, control.unload)

    def switch_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        vault = self.get_object(request, str(pk))
        if vault is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(pk))
        return self._posted(request, lambda: control.switch(vault.name))

    def warm_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        vault = self.get_object(request, str(pk))
        if vault is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(pk))
        page = reverse("admin:fleet_vault_change", args=[pk])
        return self._posted(request, lambda: control.warm_up(vault.name), page)

    def verify_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        vault = self.get_object(request, str(pk))
        if vault is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(pk))
        page = reverse("admin:fleet_vault_change", args=[pk])
        return self._posted(request, lambda: verification.start(vault), page)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What moves on one vault's page: the heat of its experts, and a verification."""
        vault = self.get_object(request, str(pk))
        if vault is None or not self.has_view_permission(request, vault):
            raise PermissionDenied
        heat = heats.total(vault.name)
        job = verification.latest(vault.name)
        told = {"heat": asdict(heat) if heat else None, "verification": asdict(job) if job else None}
        return JsonResponse(told, headers={"Cache-Control": "no-store"})

    def _posted(self, request: HttpRequest, work, page: str = "") -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._operate(request, work)
        return HttpResponseRedirect(page or reverse("admin:fleet_vault_changelist"))

    def _operate(self, request: HttpRequest, work) -> None:
        """Runs `work` and shows its sentence, or its error's."""
        if not self.may_operate(request):
            raise PermissionDenied
        try:
            self.message_user(request, work(), messages.SUCCESS)
        except control.ControlError as error:
            self.message_user(request, str(error), messages.ERROR)
        except outages.OUTAGES as error:
            self.message_user(request, outages.sentence(error), messages.ERROR)


def _holds(vaults: list[Vault]) -> list[str]:
    """The keys that are held to these vaults and no other: without them they could use every one."""
    among = Count("vaults", filter=Q(vaults__in=vaults))
    held = ApiKey.objects.filter(revoked=None).annotate(among=among, all=Count("vaults")).filter(among__gt=0)
    return [f"API key: {key.name} (it would not be held to any vault)" for key in held.filter(among=F("all"))]


def _without(fields: tuple, names: set[str]) -> list:
    """Of a fieldset: single fields and rows of them."""
    rows = [tuple(n for n in row if n not in names) if isinstance(row, tuple) else row for row in fields]
    return [row for row in rows if row and row not in names]


def _note_of_fit(row: Vault):
    return cells.fit(row, settings.SMOE.window, settings.SMOE.trunk_form) if row.top_k else ""
