from django.apps import AppConfig
from django.db.models.signals import m2m_changed, post_delete, post_save


class FleetConfig(AppConfig):
    name = "fleet"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers them
        from .connections import close_with_requests
        from .keys import keyring
        from .models import ApiKey

        close_with_requests()

        def forget(**signal) -> None:
            keyring.forget()

        for signal in (post_save, post_delete):
            signal.connect(forget, sender=ApiKey, weak=False, dispatch_uid=f"keyring-{id(signal)}")
        m2m_changed.connect(forget, sender=ApiKey.vaults.through, weak=False, dispatch_uid="keyring-vaults")
