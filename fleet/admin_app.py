from django.contrib.admin.apps import AdminConfig


class FleetAdminConfig(AdminConfig):
    """Django's admin with the fleet's site for its default one."""

    default_site = "fleet.admin_site.FleetAdminSite"
