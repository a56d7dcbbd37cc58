#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: linked_libraries_test.py PROGRAM FORBIDDEN

Fails if PROGRAM needs, itself or through another library, a shared library
whose name matches the regular expression FORBIDDEN.
"""

import re
import subprocess
import sys


def main(program, forbidden):
  listing = subprocess.run(["ldd", program], check=True, text=True,
                           capture_output=True).stdout
  libraries = [line.split()[0] for line in listing.splitlines() if line.split()]
  if not any(library.startswith("libc.so") for library in libraries):
    sys.exit(f"{program}: ldd names no C library; is it a program?\n{listing}")
  found = [library for library in libraries if re.match(forbidden, library)]
  if found:
    sys.exit(f"{program} needs {', '.join(found)}")
  print(f"{program}: {len(libraries)} libraries, none like {forbidden}")


if __name__ == "__main__":
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])
