"""Runs the launcher: python -m nimble run script.py"""

import sys

from nimble.launcher import main

sys.exit(main(sys.argv[1:]))
