"""Finds for each field a test that turns red without it: ``find.py [--most N] REGISTER,… TESTS…`` prints rows."""

from __future__ import annotations

import argparse
import os
import sys

from fields.trying import Search, collect
from fields.walking import fields, register
from support.quick import is_quick

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("registers")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--most", type=int, default=12)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked, more = parser.parse_known_args()
    wanted = [one for name in asked.registers.split(",") for one in fields(name) if one not in register(name)["fields"]]
    search = Search(wanted, asked.workers, asked.most)
    collect(search.run, [*asked.tests, *more])
    for name in wanted:
        print(f"{'row' if name in search.found else 'none'}\t{name}\t{search.found.get(name, '')}", file=sys.stderr)
