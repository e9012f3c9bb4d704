"""Writes a walk (walk.py) as a page in Markdown."""

import textwrap

from walk import NETWORK


def wrapped(text):
    return textwrap.fill(text, 120, subsequent_indent="  " * text.startswith("- "), break_long_words=False, break_on_hyphens=False)


def transcript(walk):
    """A page in Markdown. What installs is indented, as commands are that the tests of pages do not run."""
    text = ["# Tutorial: ten minutes", "",
            "From `pip install` to the first speed-up, and to the answer why a kernel waits.", "",
            "`scripts/ten_minutes` takes these steps and checks each of them; with `--transcript FILE` it writes this page. "]
    if walk.simulated:
        text[-1] += "Here it ran without a GPU: **the driver, and all times on the device, are simulated**."
    if walk.options.installed:
        text += ["", "[Installed](../../README.md#install) it was already. All commands are typed in `build/default`."]
    if not walk.built:
        text += ["", "The example and the simulated driver are not in the wheel. `scripts/demo`, which shows much of this in one go, had built "
                 "them."]
    text = [wrapped(line) for line in text]
    for step in walk.steps:
        text += ["", f"## {step.number}. {step.title}", ""]
        if step.text:
            text += [wrapped(step.text), ""]
        if step.is_setup:
            text += [f"    {line}" for line in step.commands]
            text += [line for each in step.lines for line in ("", wrapped(f"prints `{each}`."))]
        else:
            text += ["```sh", *step.commands, "```", "", "```output", *step.lines, "```"]
        note = step.note[0].upper() + step.note[1:]
        text += ["", wrapped(f"{note} ({step.seconds:.1f} s).")]
    text += ["", "## In the end", ""]
    text += [wrapped(f"- {line[0].upper()}{line[1:]}.") for line in walk.summary()
             if walk.torch or not line.startswith("left out: PyTorch")]
    if walk.torch:
        text += ["", "The network:", "", "```python", NETWORK.read_text(encoding="utf-8").rstrip(), "```"]
    else:
        text += ["- With a GPU and PyTorch the script also runs a small network with branches, eagerly and with",
                 "  `torch.compile(model, backend=\"nimble\")`."]
    text += ["", "Next: [record a program of your own](any-program.md#your-own-program), read [what the causes",
             "mean](../howto/why-slow.md) and [what the page shows](../howto/look-at-a-step.md), or go on with [PyTorch](pytorch.md)."]
    return "\n".join(text) + "\n"
