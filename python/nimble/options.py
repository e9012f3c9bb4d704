"""Nimble's options by name, without NIMBLE_. Written by scripts/options from include/nimble/internal/options.def: change
that file instead.

No PyTorch here. Any thread.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple


class Option(NamedTuple):
    """`modes`: where it counts, ("any",) or of off, record, replay, auto, regions, check and graphs. `words`: of a choice, all that it may be.
    `separator`: between the parts of a list."""

    default: str
    modes: Tuple[str, ...]
    words: Tuple[str, ...] = ()
    separator: str = ""


OPTIONS: Dict[str, Option] = {
    "MODE": Option("off", ("any",), words=("off", "record", "replay", "auto", "regions", "check")),
    "GRAPHS": Option("off", ("off",), words=("off", "rewrite")),
    "TRACE": Option("trace.json", ("record", "graphs")),
    "TRACE_LIMIT": Option("4096", ("record",)),
    "STEPS": Option("0", ("record",)),
    "TIMING": Option("cupti", ("record",), words=("cupti", "events", "none")),
    "COVERAGE": Option("on", ("record",), words=("on", "off")),
    "PROBE": Option("off", ("record", "graphs"), words=("off", "writes")),
    "PROBE_LIMIT": Option("64", ("record", "graphs")),
    "PROBE_FIRST": Option("0", ("record", "graphs")),
    "CAPTURE": Option("off", ("record",), words=("off", "bundle")),
    "BUNDLE": Option("bundle", ("record",)),
    "BUNDLE_LIMIT": Option("4096", ("record",)),
    "SCHEDULE": Option("schedule.json", ("replay",)),
    "TUNE": Option("start", ("replay", "auto", "graphs"), words=("off", "start", "always")),
    "TUNE_SAVE": Option("off", ("replay",), words=("on", "off")),
    "LOG": Option("info", ("any",), words=("off", "error", "warn", "info")),
    "LOG_FILE": Option("", ("any",)),
    "STATS": Option("", ("replay", "auto", "check")),
    "LIVE": Option("", ("record", "replay", "auto", "regions", "graphs")),
    "AUDIT": Option("0", ("replay", "auto")),
    "HOLD_US": Option("1000", ("replay", "auto")),
    "RULES": Option("", ("auto", "regions", "check", "graphs"), separator=":"),
    "TRUST": Option("proven", ("auto", "regions", "check", "graphs"), words=("exact", "proven", "declared", "observed")),
    "CACHE": Option("", ("record", "replay", "auto", "regions", "check", "graphs")),
    "AUTO_LIMIT": Option("256", ("record", "auto", "graphs")),
    "AUTO_TRIES": Option("3", ("auto",)),
    "AUTO_WAIT": Option("0", ("auto",)),
    "CHECK_EVERY": Option("0", ("check",)),
    "CHECK_SEED": Option("1", ("check",)),
    "TORCH": Option("auto", ("auto",), words=("auto", "training", "off")),
    "TORCH_SKIP": Option("", ("auto",), separator=","),
}
