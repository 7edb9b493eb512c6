# SPDX-License-Identifier: MIT
"""`python -m mpnet` is the command `mpnet`."""

import sys


def main() -> None:
    """Run the command line; an interruption while the program is still loading is one as well."""
    try:
        from mpnet.cli.signals import handle_signals

        handle_signals()
        from mpnet.cli.main import main as run

        run()
    except BaseException as error:
        # Python wraps what meets a class while it is made: RuntimeError from KeyboardInterrupt, or from SystemExit.
        if isinstance(error.__cause__, SystemExit):
            raise error.__cause__ from None
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
