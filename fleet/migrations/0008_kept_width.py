from django.db import migrations, models


def read_again(apps, schema_editor):
    """A vault whose files have not changed would never be asked for the new field."""
    apps.get_model("fleet", "Vault").objects.update(signature="")


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0007_unloaded"),
    ]

    operations = [
        migrations.AddField(
            model_name="vault",
            name="kept_width",
            field=models.BigIntegerField(help_text="Elements that a layer keeps of a position.", null=True),
        ),
        migrations.RunPython(read_again, migrations.RunPython.noop),
    ]
