"""Arithmetic on the runs of a comparison: parity of losses, medians, and ratios of paired rounds."""

import math
import statistics

LOSS_TOLERANCE = 1e-5  # relative, at every step
BFLOAT16_TOLERANCE = 2e-2  # of a side that computes in bfloat16, against one that does not


class LossesDiffer(Exception):
    """Two sides did not do the same work, so their times cannot be compared."""


def relative_difference(a, b):
    """|a - b| / |b|; infinite where either is not a finite number."""
    if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in (a, b)):
        return math.inf
    return abs(a - b) / abs(b) if b != 0 else (0.0 if a == 0 else math.inf)


def check_losses(runs, where):
    """Compares every side's loss with the first side's at every step; returns the largest relative difference of those
    that compute as it does. `runs`: {side: run}. Throws LossesDiffer above the side's tolerance."""
    (reference, first), *others = runs.items()
    largest = 0.0
    for side, run in others:
        tolerance = BFLOAT16_TOLERANCE if side.endswith("_bf16") else LOSS_TOLERANCE
        if len(run["steps"]) != len(first["steps"]):
            raise LossesDiffer(f"{where}: {side} made {len(run['steps'])} steps, {reference} {len(first['steps'])}")
        for index, (ours, theirs) in enumerate(zip(first["steps"], run["steps"])):
            difference = relative_difference(ours["loss"], theirs["loss"])
            if difference > tolerance:
                raise LossesDiffer(
                    f"{where}, step {index}: the loss of {reference} is {ours['loss']!r}, that of {side} is "
                    f"{theirs['loss']!r}; they differ by {difference:.1e} of it, need at most {tolerance:g}")
            if tolerance == LOSS_TOLERANCE:
                largest = max(largest, difference)
    return largest


def median_ms(run, phase, warmup):
    """Median over the steps of a run after its first `warmup`, in ms; None if the side does not know the phase.
    "after_backward" is what a step has besides forward and backward."""
    def of(ms):
        return ms["step"] - ms["forward"] - ms["backward"] if phase == "after_backward" else ms.get(phase)
    values = [of(step["ms"]) for step in run["steps"][warmup:]]
    return None if None in values else statistics.median(values)


def over_rounds(rounds, side, phase, warmup):
    """Median over rounds of the rounds' medians, in ms, or None."""
    values = [median_ms(round_["runs"][side], phase, warmup) for round_ in rounds]
    return None if None in values else statistics.median(values)


def paired_ratios(rounds, peer, ours, phase, warmup):
    """peer / ours of each round: runs that stood next to each other in time, so that what slows the machine for
    minutes slows both."""
    return [median_ms(round_["runs"][peer], phase, warmup) / median_ms(round_["runs"][ours], phase, warmup)
            for round_ in rounds]


def order_of(round_index, sides):
    """The order in which the sides run in a round: another one begins each time, and every other lap is reversed, so
    that no side always follows the same one."""
    shift = round_index % len(sides)
    order = sides[shift:] + sides[:shift]
    return order if (round_index // len(sides)) % 2 == 0 else order[::-1]


def summarize(setting_result, pairs, warmup):
    """What the tables show, from the raw rounds of one setting."""
    rounds, sides = setting_result["rounds"], setting_result["sides"]
    phases = ("step", "forward", "backward", "after_backward", "clip", "optimizer", "comm")
    return {
        "sides": {side: {
            "ms": {phase: over_rounds(rounds, side, phase, warmup) for phase in phases},
            "start_s": statistics.median(round_["runs"][side]["start_s"] for round_ in rounds),
            "pss_mb": setting_result["memory_round"][side]["pss_mb"],
        } for side in sides},
        "pairs": [{"peer": peer, "ours": ours, **{
            phase: _spread(paired_ratios(rounds, peer, ours, phase, warmup))
            for phase in ("step", "forward", "backward", "after_backward")}} for peer, ours in pairs],
    }


def _spread(ratios):
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
