#!/usr/bin/env python3
"""The entry point from a clone: `python launch.py --help`. An installed package has the same as
`attnlab`.
"""

import sys

from attnlab.commands import main

if __name__ == "__main__":
    sys.exit(main())
