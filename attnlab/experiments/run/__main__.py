"""`python -m attnlab.experiments.run`: see `process.py`."""

import sys

from attnlab.experiments.run.process import main

if __name__ == "__main__":
    sys.exit(main())
