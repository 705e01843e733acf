"""`python -m massmem`."""

import sys

from massmem.cli.main import main

sys.exit(main())
