"""The entry point: `python -m diagnostics +exp=...`. Thin, and imports nothing heavy.

The task itself lives in `diagnostics.run`, an importable module, because a launcher sends it to
other processes.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from diagnostics.catalogue import config_folder, is_listing, listing, rewrite_overrides
from diagnostics.errors import DiagnosticsError
from diagnostics.threads import prepare_environment

__all__ = ["main"]


def main() -> None:
    """Show what there is, or compose the configuration and run the experiment."""
    arguments = sys.argv[1:]
    asked = bool(arguments) and arguments[0] in ("-h", "--help")
    if asked or is_listing(arguments):
        print(listing(arguments))
        if asked:
            print(
                "\n--cfg job prints the composed configuration, -m runs every combination of comma-separated "
                "values,\nsbatch before the arguments prints a batch script for SLURM, "
                "--hydra-help lists what else Hydra can do."
            )
        return
    prepare_environment()
    try:
        if arguments[0] == "sbatch":
            from diagnostics.cluster.sbatch import batch_script

            print(batch_script(arguments[1:]), end="")
            return
        sys.argv[1:] = rewrite_overrides(arguments)
    except DiagnosticsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    import hydra

    from diagnostics.run import task

    if any(argument in ("-m", "--multirun") for argument in arguments) and find_spec("submitit") is not None:
        from diagnostics.cluster.watch import watch_by_queue

        watch_by_queue()
    hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")(task)()


if __name__ == "__main__":
    main()
