"""`python -m penstock` is the same as the command `penstock`."""

import sys

from penstock.cli.main import main

sys.exit(main())
