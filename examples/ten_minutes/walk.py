"""A newcomer's first ten minutes, step by step: what is typed, what came of it, and the checks of it (scripts/ten_minutes)."""

import filecmp
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORK = pathlib.Path(__file__).resolve().parent / "branches.py"
EXAMPLE = ("bin/digits", "simcuda/libcuda.so.1", "simcuda/libcupti.so.13")


class Failure(Exception):
    """Why a step has not done what it says."""


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{path.name} cannot be read: {error}") from error


def must(condition, otherwise):
    if not condition:
        raise Failure(otherwise)


class Step:
    def __init__(self, number, title, text):
        self.number, self.title, self.text = number, title, text
        self.commands, self.lines, self.seconds = [], [], 0.0
        self.said, self.note, self.is_setup = "", "", False


class Walk:
    """The steps, in a folder that looks like a checkout with its build tree, where each command works as it is printed."""

    def __init__(self, options, checkout):
        self.options, self.work = options, checkout / "build" / "default"
        self.work.mkdir(parents=True)
        self.environment = dict(os.environ)
        if not options.installed:  # the environment has to hold what it needs
            self.environment.pop("PYTHONPATH", None)
        self.steps, self.left_out = [], []
        self.speed_up = self.answer = ""

    # How a step is made.

    def begin(self, title, text):
        self.steps.append(Step(len(self.steps) + 1, title, text))
        print(f"\n{len(self.steps)}. {title}", flush=True)
        return self.steps[-1]

    def run(self, step, command, cwd=None, allow=(0,), show=None):
        """Runs a command as it is printed; what it says on either stream. `allow`: its exit statuses when all is well."""
        shown = show or command
        step.commands.append(shown)
        print(f"   $ {shown}", flush=True)
        begin = time.monotonic()
        done = subprocess.run(["bash", "-c", command], env=self.environment, cwd=cwd or self.work, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        step.seconds += time.monotonic() - begin
        step.said = done.stdout
        must(done.returncode in allow, f"exit status {done.returncode} from `{shown}`")
        return done.stdout

    def export(self, step, name, value, shown):
        """A variable for all that follows, as a reader sets it."""
        step.commands.append(shown)
        print(f"   $ {shown}", flush=True)
        if value is None:
            self.environment.pop(name, None)
        else:
            self.environment[name] = value

    def show(self, step, said, *patterns):
        """The lines of the output that matter: the first one that matches each pattern, all of which have to be there, in order."""
        lines = said.splitlines()
        for pattern in patterns:
            at = next((number for number, line in enumerate(lines) if re.search(pattern, line)), None)
            must(at is not None, f"it did not print a line like `{pattern}`")
            step.lines.append(lines[at].rstrip())
            lines = lines[at + 1:]

    def end(self, step, note):
        step.note = note
        for line in step.lines:
            print(f"     {line}")
        print(f"   = {note} ({step.seconds:.1f} s)", flush=True)

    # The steps.

    def wheel(self):
        """The wheel to install, made where none was given."""
        if self.options.wheel is not None:
            return self.options.wheel
        step = self.begin("Make the wheel", "In the checkout:")
        step.is_setup = True
        # The script removes other wheels from where it puts its own: it gets a folder of its own.
        words = ["--build", str(self.options.build), "--out", str(self.work.parent / "made")]
        words += ["--no-build"] if self.options.no_build else []
        said = self.run(step, shlex.join([str(ROOT / "scripts/wheel"), *words]), show="scripts/wheel")
        found = list((self.work.parent / "made").glob("nimble_cuda-*.whl"))
        must(len(found) == 1, "it left no wheel")
        step.lines.append(f"wheel: build/wheel/{found[0].name}")
        self.end(step, f"{found[0].stat().st_size / 1e6:.1f} MB, with the library and the commands")
        return found[0]

    def example(self):
        """The example and the simulated driver are no part of a wheel."""
        build = self.options.build
        missing = [name for name in EXAMPLE if not (build / name).exists()]
        self.built = bool(missing)
        if missing and not self.options.no_build and (build / "CMakeCache.txt").is_file():
            step = self.begin("Build the example and the simulated driver", "They are not in the wheel. In the checkout:")
            step.is_setup = True
            self.run(step, shlex.join(["cmake", "--build", str(build), "--target", *EXAMPLE]), cwd=ROOT,
                     show="cmake --build build/default --target " + " ".join(EXAMPLE))
            missing = [name for name in EXAMPLE if not (build / name).exists()]
            self.end(step, "what scripts/demo builds, too")
        for name in ("bin", "simcuda"):
            os.symlink(build / name, self.work / name)
        if missing:
            raise Failure(f"{build / missing[0]} is missing: scripts/demo builds it")

    def install(self, wheel):
        step = self.begin("Install", "Into a fresh environment, without the network:")
        step.is_setup = True
        must(wheel.is_file(), f"there is no {wheel}")
        place = self.work.parent / "wheel"
        place.mkdir()
        os.symlink(wheel, place / wheel.name)
        python = shlex.quote(sys.executable)
        step.commands.append("cd build/default")
        self.run(step, f"{python} -m venv {'--system-site-packages ' if self.torch else ''}env",
                 show=f"python3 -m venv {'--system-site-packages ' if self.torch else ''}env")
        self.export(step, "PATH", f"{self.work / 'env/bin'}:{self.environment.get('PATH', '')}", ". env/bin/activate")
        self.environment["VIRTUAL_ENV"] = str(self.work / "env")
        said = self.run(step, f"pip install --no-index --no-deps ../wheel/{wheel.name}")
        self.show(step, said, "^Successfully installed nimble-cuda-")
        self.share_torch()
        self.end(step, "one distribution, nimble-cuda, which needs no other")

    def share_torch(self):
        """An environment on top of another one does not see its packages, only those of the Python below."""
        if self.torch and sys.prefix != sys.base_prefix:
            (packages,) = (self.work / "env/lib").glob("python*/site-packages")
            (packages / "torch_of_the_caller.pth").write_text(f"{self.torch['packages']}\n", encoding="utf-8")

    def version(self, wheel):
        step = self.begin("See what is there", "")
        said = self.run(step, "nimble --version")
        self.show(step, said, r"^nimble \d")
        found = re.search(r"^nimble (\S+)", said, re.MULTILINE)[1]
        library = re.search(r"^library +(/.*)", said, re.MULTILINE)
        must(library and pathlib.Path(library[1]).is_file(), "it names no library")
        analyzer = self.run(step, "nimble-analyze --version")
        self.show(step, analyzer, r"^nimble-analyze \d")
        must(analyzer.split()[1] == found, f"nimble is {found}, and it is {analyzer.strip()}")
        if wheel is not None:
            must(found == wheel.name.split("-")[1], f"{wheel.name} was installed, and nimble is {found}")
            must(self.work.resolve() in pathlib.Path(library[1]).resolve().parents, f"its library is another one, {library[1]}")
        self.end(step, f"version {found}, with its own library")

    def digits(self, name):
        return f"bin/digits train --epochs {self.options.epochs} --seed 1 --save {name}.weights --stats {name}.json"

    def trained(self, name):
        """What a run of the example left."""
        facts, weights = read_json(self.work / f"{name}.json"), self.work / f"{name}.weights"
        must(facts["steps"] > 0 and facts["ops_per_step"] > 0, "it made no step")
        must(weights.is_file() and weights.stat().st_size > 0, "it saved no weights")
        must(facts["simulated"] == self.simulated, "it ran on another device than the plain run")
        return facts

    def same_weights(self, name):
        return filecmp.cmp(self.work / "plain.weights", self.work / f"{name}.weights", shallow=False)

    def plain(self):
        step = self.begin("Run a program plainly", "")
        ask = [self.work / "bin/digits", "device"]
        answers = not self.options.simulated and subprocess.run(ask, env=self.environment, cwd=self.work, stdout=subprocess.DEVNULL,
                                                                stderr=subprocess.DEVNULL, check=False).returncode == 0
        self.path_before = self.environment.get("LD_LIBRARY_PATH")
        if not answers:
            step.text = ("`examples/digits` trains a small network through the CUDA driver API, 392 ops a step. Without a GPU, the "
                         "simulated driver comes first:")
            path = [str(self.work / "simcuda"), *([self.path_before] if self.path_before else [])]
            self.export(step, "LD_LIBRARY_PATH", ":".join(path), "export LD_LIBRARY_PATH=$PWD/simcuda")
        else:
            step.text = "`examples/digits` trains a small network through the CUDA driver API, 392 ops a step:"
        said = self.run(step, self.digits("plain"))
        self.simulated = "Simulated GPU" in said
        must(answers or self.simulated, "no device answered")
        self.show(step, said, "^device: ", "^steps: ")
        facts = self.trained("plain")
        self.plain_us = facts["gpu_us_per_step"]
        self.end(step, f"{facts['steps']} steps, {self.microseconds(self.plain_us)} each on the device")

    def microseconds(self, value):
        return f"{value:.1f} us{' (simulated)' if self.simulated else ''}"

    def record(self):
        step = self.begin("Record it", "The program runs as before, and each call that it makes of the driver is written down:")
        said = self.run(step, f"nimble run --trace trace.json -- {self.digits('record')}")
        self.trained("record")
        trace = self.work / "trace.json"
        must(trace.is_file(), "it left no trace.json")
        with open(trace, encoding="utf-8") as lines:
            # Each op stands there twice: as a call (process 1), and on its stream's track.
            ops = sum(1 for line in lines if re.match(r'{"ph":"X","pid":1,.*"cat":"(launch|copy|set)"', line))
        must(ops > 0, "trace.json has no ops")
        self.show(step, said, "nimble: info: wrote trace.json")
        must(self.same_weights("record"), "the weights differ from those of the plain run")
        self.end(step, f"{ops} launches, copies and sets in trace.json; the weights are the plain run's")

    def why_slow(self):
        step = self.begin("What does the GPU wait for?", "Of one step, the one of median length:")
        said = self.run(step, "nimble-analyze why-slow trace.json --json why.json")
        ledger = read_json(self.work / "why.json")
        entries, causes = ledger["entries"], ledger["causes"]
        must(ledger["ops"] > 0 and entries, "it found no op, or put no time down to anything")
        must(ledger["simulated"] == self.simulated, "it holds the times for those of another device")
        known = {cause: us for cause, us in causes.items() if cause != "unknown" and us > 0}
        must(known, "it put no time down to a known cause")
        cause = max(known, key=known.get)
        first = next((each for each in entries if each["cause"] == cause), None)
        must(first, f"it has no entry for its largest cause, {cause}")
        self.show(step, said, "^step ", "^idle ", "^narrow ", r"^ .*\b" + re.escape(f"{cause}: {first['what']}"[:60]),
                  f"^  {re.escape(cause)} \\(")
        share = 100 * known[cause] / (ledger["idle_us"] + ledger["narrow_us"])
        self.answer = (f"{cause}: {self.microseconds(known[cause])}, {share:.0f} % of the time in which the GPU is idle or narrow; "
                       f"what helps: {first['helps']}")
        unknown = causes.get("unknown", 0)
        self.end(step, self.answer + (f". {self.microseconds(unknown)} could not be put down to anything" if unknown > 0 else ""))
        orders = [each for each in entries if each["cause"] in ("dependency", "program order") and "held_by" in each["largest"]]
        self.asked = max(orders, key=lambda each: each["idle_us"] + each["narrow_us"], default=None)

    def why(self):
        if self.asked is None:
            self.left_out.append("why two ops are ordered: no order costs time in this step")
            print(f"\n   left out: {self.left_out[-1]}")
            return
        op, held_by, cause = self.asked["largest"]["op"], self.asked["largest"]["held_by"], self.asked["cause"]
        first, second = sorted((op, held_by))
        step = self.begin("Why is this kernel waiting?",
                          f"In `why.json` the largest entry for an order, `{cause}`, names two ops: `op` {op} was held by `held_by` {held_by}.")
        said = self.run(step, f"nimble-analyze --why {first} {second} trace.json")
        self.show(step, said, f"^op {first} \\(", f"^op {second} \\(", "^(Not ordered|Ordered)", r"\S")
        is_ordered = re.search("^Ordered", said, re.MULTILINE) is not None
        must(is_ordered == (cause == "dependency"), f"why-slow calls it {cause}, and --why says {'ordered' if is_ordered else 'not ordered'}")
        if is_ordered:
            verdict = f"op {op} needs what op {held_by} did: it has to wait"
        else:
            verdict = f"op {op} needs nothing of op {held_by}, and waits only since the program submitted it later on the same stream"
        self.waiting = verdict
        self.end(step, verdict)

    def report(self):
        step = self.begin("Look at it in a browser", "")
        said = self.run(step, "nimble-analyze report trace.json")
        self.show(step, said, "^Written: report.html")
        page = self.work / "report.html"
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        must("<html" in text and "</html>" in text[-200:], "report.html is no whole page")
        self.end(step, f"`report.html` is one file of {len(text) / 1000:.0f} kB, with a timeline, the dependencies, and these answers")

    def schedule(self):
        step = self.begin("Make a schedule", "")
        said = self.run(step, "nimble-analyze trace.json")
        self.show(step, said, "^step ", "^dependencies ", "^policy ", "<- chosen")
        plan = read_json(self.work / "schedule.json")
        must(plan["segments"], "schedule.json has no segment")
        streams = max(segment["lanes"] for segment in plan["segments"])
        self.graphs = len(plan["segments"])
        self.end(step, f"by `schedule.json` each step is {self.graphs} graph{'s' * (self.graphs != 1)} with up to {streams} branches side by side")

    def replay(self):
        step = self.begin("Replay", "The same program, on that schedule:")
        said = self.run(step, f"nimble run --mode replay --tune off --stats counters.json -- {self.digits('replay')}")
        facts, counters = self.trained("replay"), read_json(self.work / "counters.json")
        why = ", ".join(f"{key}: {counters[key]}" for key in ("divergences", "reasons", "stood_aside") if counters.get(key))
        must(counters["steps_replayed"] > 0 and counters["graph_launches"] > 0, f"no step was replayed, and {counters['ops_passed_through']} ops were submitted one by one{why and f' ({why})'}")
        self.show(step, said, "nimble: info: .*steps replayed")
        self.replay_us = facts["gpu_us_per_step"]
        self.end(step, f"{counters['steps_replayed']} of {facts['steps']} steps replayed, {self.microseconds(self.replay_us)} each on the device")

    def compare(self):
        step = self.begin("Compare", "")
        said = self.run(step, "cmp plain.weights record.weights && cmp plain.weights replay.weights && echo identical", allow=(0, 1))
        must(self.same_weights("record") and self.same_weights("replay") and said.strip() == "identical", "the weights differ")
        self.show(step, said, "^identical$")
        ratio = self.plain_us / self.replay_us
        self.speed_up = (f"{ratio:.2f} times{' (simulated)' if self.simulated else ''}: a step takes {self.replay_us:.1f} us on the device "
                         f"instead of {self.plain_us:.1f}")
        if ratio <= 1:
            self.speed_up = "none: " + self.speed_up
        self.end(step, f"the same weights, to the bit. Speed-up {self.speed_up}")

    def network(self):
        if not self.torch:
            return
        step = self.begin("PyTorch: a network with branches, eagerly",
                          "Six blocks of four branches of convolutions over one image, with random weights:")
        shutil.copy(NETWORK, self.work)
        if self.environment.get("LD_LIBRARY_PATH") != self.path_before:
            self.export(step, "LD_LIBRARY_PATH", self.path_before, "unset LD_LIBRARY_PATH" if self.path_before is None else
                        f"export LD_LIBRARY_PATH={self.path_before}")
        eager = self.last_json(self.run(step, "python branches.py"))
        step.lines.append(json.dumps(eager))
        self.end(step, f"a call takes {eager['ms']:.3f} ms")
        step = self.begin("The same with torch.compile(model, backend=\"nimble\")", "")
        ours = self.last_json(self.run(step, "python -m nimble run branches.py nimble"))
        step.lines.append(json.dumps(ours))
        must(ours["served"] > 0, "no call was served by a graph")
        must(ours["equal"], "outputs differ from eager's")
        self.speed_up += (f"; PyTorch {eager['ms'] / ours['ms']:.2f} times: a call takes {ours['ms']:.3f} ms instead of eager's "
                          f"{eager['ms']:.3f}")
        self.end(step, f"a call takes {ours['ms']:.3f} ms instead of {eager['ms']:.3f}; {ours['served']} calls served by graphs; outputs "
                       "identical to eager's, to the bit")

    @staticmethod
    def last_json(said):
        for line in reversed(said.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failure("it printed no result")

    def look_for_torch(self):
        """What the caller's Python has of PyTorch with a GPU; nothing, with a reason, where that does not do."""
        self.torch = None
        if self.options.simulated:
            return self.left_out.append("PyTorch: --simulated was given")
        ask = ("import json, os, torch; print(json.dumps({'gpu': torch.cuda.is_available(), 'version': torch.__version__,"
               " 'packages': os.path.dirname(os.path.dirname(torch.__file__))}))")
        if self.options.installed:
            ask = "import nimble.launcher; " + ask
        python = shutil.which("python") if self.options.installed else sys.executable
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False) if python else None
        if done is None or done.returncode != 0:
            return self.left_out.append(f"PyTorch: python has none{', or no package nimble' * self.options.installed}")
        found = self.last_json(done.stdout)
        if not found["gpu"]:
            return self.left_out.append("PyTorch: it finds no GPU")
        if tuple(int(part) for part in re.findall(r"\d+", found["version"])[:2]) < (2, 5):
            return self.left_out.append(f"PyTorch: torch.compile takes backends by name from 2.5 on, and this is {found['version']}")
        self.torch = found
        return None

    def walk(self):
        self.look_for_torch()
        wheel = None if self.options.installed else self.wheel()
        self.example()
        if wheel is None:
            for name in ("nimble", "nimble-analyze"):
                if shutil.which(name) is None:
                    raise Failure(f"--installed was given, and there is no {name} in PATH")
        else:
            self.install(wheel)
        self.version(wheel)
        self.plain()
        self.record()
        self.why_slow()
        self.why()
        self.report()
        self.schedule()
        self.replay()
        self.compare()
        self.network()

    def summary(self):
        lines = [f"steps: all {len(self.steps)} did what they say; {sum(step.seconds for step in self.steps):.0f} s in all"]
        lines.append(f"first speed-up: {self.speed_up}")
        lines.append(f"what the GPU waits for: {self.answer}")
        if self.asked is not None:
            lines.append(f"why the kernel waits: {self.waiting}")
        lines += [f"left out: {each}" for each in self.left_out]
        if self.simulated:
            lines.append("the driver is simulated, and so are all times on the device: they come from a model; a GPU's will be others")
        return lines
