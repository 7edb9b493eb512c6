# SPDX-License-Identifier: MIT
"""`mpnet completion`: what a shell needs to complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mpnet.cli.options import declare

SHELLS = ("bash", "zsh", "fish")


@declare(
    'eval "$(mpnet completion bash)"', "mpnet completion fish > ~/.config/fish/completions/mpnet.fish", quiet=False, json=False
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes `mpnet` in a SHELL.

    For good: put `eval "$(mpnet completion bash)"` into ~/.bashrc, with zsh into ~/.zshrc.
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(click.get_current_context().find_root().command, {}, "mpnet", "_MPNET_COMPLETE").source())
