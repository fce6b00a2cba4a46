"""Does a speed hold for a family of models, or for the one that was timed?

``python benchmarks/families.py [--variants N] [--cpu S] [--nuts] [--save FILE] [family ...]`` makes a default call on N
variants of each family (``gallery_models/families.py``: random sizes, priors and data), as ``catalogue.py`` does: in a
process of its own, with nothing compiled on disk and a limit of CPU seconds.  A family's line says how far its slowest
variant is from the median.
"""

import argparse
from pathlib import Path
from statistics import median

from catalogue import COLUMNS, Saved, describe, summarise
from gallery_models.families import FAMILIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--variants", type=int, default=10)
    parser.add_argument("--cpu", type=int, default=300, help="CPU seconds of a call, with its imports")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nuts", action="store_true", help="draw with pm.sample, too, and ask bridge")
    parser.add_argument("--save", type=Path, help="a file of JSON lines; rows that it has are not run again")
    options = parser.parse_args()
    saved = Saved(options.save, options.seed, options.cpu)
    print(f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|")
    lines, rows = [], []
    for family in options.families:
        own = []
        for variant in range(1, options.variants + 1):
            name = f"{family}:{variant}"
            own.append((saved.get(name, name, "hais"), saved.get(name, name, "nuts") if options.nuts else {}))
            print(describe(name, *own[-1]), flush=True)
        rows += own
        seconds = sorted(options.cpu if ours["end"] == "too slow" else ours.get("cpu", 0.0) for ours, _ in own)
        errors = [ours["se"] for ours, _ in own if "se" in ours]
        middle = median(seconds)
        lines.append(
            f"{family}: median {middle:.1f} CPU s, slowest {seconds[-1]:.1f} ({seconds[-1] / middle:.1f} times), "
            f"largest error {max(errors, default=float('nan')):.3f}"
        )
    print("\n" + "\n".join(lines))
    summarise(rows)


if __name__ == "__main__":
    main()
