"""python -m bench.conformance [-k PATTERN] [--target TARGET] [--every N] [--workers N]
[--timeout SECONDS]"""

from __future__ import annotations

import argparse
import re
import sys

from bench.conformance import cases, elsewhere, page, workers
from bench.conformance.workers import Outcome, Verdict


def main() -> None:
    """Run the suite and write the page of results. With a pattern, run only the matching tests,
    print all failures, and exit with status 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m bench.conformance", description=__doc__)
    parser.add_argument("-k", metavar="PATTERN", help="only tests that it finds; writes no page")
    parser.add_argument("--target", help="a device with a host, such as webgpu")
    parser.add_argument("--every", type=int, default=1, help="each N-th test; writes no page")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one test")
    args = parser.parse_args()
    loaded = elsewhere.load(args.target) if args.target else cases.load()
    chosen = [case for case in loaded if re.search(args.k or "", case.name)][:: args.every]
    if args.target:
        is_whole = not args.k and args.every == 1
        sys.exit(not elsewhere.check(chosen, args.workers, is_whole))
    done = 0

    def progress(case: cases.Case, outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if args.k and outcome.verdict is not Verdict.PASSED:
            print(f"{case.name}: {outcome.verdict}: {outcome.reason}", flush=True)
        elif done % 200 == 0:
            print(f"{done} of {len(chosen)}", flush=True)

    outcomes = workers.run(chosen, args.workers, args.timeout, progress)
    verdicts = [outcomes[case.name].verdict for case in chosen]
    about = [case.operator or case.suite for case in chosen]
    order = sorted(range(len(chosen)), key=about.__getitem__)
    rows = page.table((about[i] for i in order), (verdicts[i] for i in order), "operator")
    print("\n".join(rows))
    if not args.k and args.every == 1:
        page.PAGE.write_text(page.render(chosen, outcomes))
        print("\n".join(page.table((case.suite for case in chosen), verdicts, "suite")))
        print(f"written: {page.PAGE}")
    elif set(verdicts) - {Verdict.PASSED}:
        sys.exit(1)


if __name__ == "__main__":
    main()
