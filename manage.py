#!/usr/bin/env python3
"""Django's command line: `serve`, `scan_vaults`, `shatter`, `verify_vault`, ..."""

import os
import sys

from smoe_site import options


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "smoe_site.settings")
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError

    try:
        if sys.argv[1:2] == ["serve"]:
            options.export_flags(sys.argv[2:])
        execute_from_command_line(sys.argv)
    except options.OptionError as error:
        sys.exit(str(error))
    except DatabaseError as error:
        if "--traceback" in sys.argv:
            raise
        from fleet.outages import sentence_with_place

        sys.exit(sentence_with_place(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
