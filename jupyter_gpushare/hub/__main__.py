"""`python -m jupyter_gpushare.hub`: the GPU service, started by the hub or by whoever runs it beside one."""

import sys

from .run import main

sys.exit(main())
