"""Man pages and completions hold what --help of each command shows, and shells complete by them.

Usage: commands_test.py BUILD_FOLDER
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

BUILD = os.path.abspath(sys.argv[1])
SHARE = os.path.join(BUILD, "share")
PROGRAMS = {"nimble": ("run", "check", "top"), "nimble-analyze": ("check", "code", "diff", "kernels", "report", "why-slow"), "nimble-replay": ()}
COMMANDS = [(program, name) for program, names in PROGRAMS.items() for name in ("", *names)]
MAN = {program: os.path.join(SHARE, "man", "man1", f"{program}.1") for program in PROGRAMS}
BASH = {program: os.path.join(SHARE, "bash-completion", "completions", program) for program in PROGRAMS}
ZSH = {program: os.path.join(SHARE, "zsh", "site-functions", f"_{program}") for program in PROGRAMS}
FISH = {program: os.path.join(SHARE, "fish", "vendor_completions.d", f"{program}.fish") for program in PROGRAMS}
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"
POLICIES = {"nimble", "single", "greedy", "levels", "cost"}


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False, **options)


def said(*words, **options):
    done = run(*words, **options)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"{words}: status {done.returncode}: {done.stderr}")
    return done.stdout


def asked(program, name, option):
    return said(os.path.join(BUILD, "bin", program), *filter(None, [name]), option)


def helped(program, name):
    """The options that --help shows."""
    lines = re.findall(r"^  (-\S+)", asked(program, name, "--help"), re.MULTILINE)
    return {option for line in lines for option in line.split(",")}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def man_options(text):
    tags = re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)
    names = [name.replace("\\-", "-") for tag in tags for name in re.findall(r"\\fB(.*?)\\fR", tag)]
    return {name for name in names if name.startswith("-")}


def bash_completes(program, *words, setup="", folder=None):
    """What bash offers for the last word."""
    script = """source "$1" || exit 1
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
function=$(complete -p "$1") function=${function#* -F } function=${function%% *}
$function "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    out = said("bash", "--norc", "-c", setup + script, "bash", BASH[program], program, *words, cwd=folder)
    return set(filter(None, out.split("\n")))


def fish_completes(program, *words, folder=None):
    out = said("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", FISH[program], " ".join((program, *words)), cwd=folder)
    return {line.split("\t")[0] for line in out.splitlines()}


def zsh_says(program, *words):
    """What the function hands to zsh's own _arguments and _describe, a word a line."""
    script = """_arguments() { print -rl -- arguments "$@" }
_normal() { print -rl -- normal $CURRENT "${words[@]}" }
_describe() { print -rl -- describe "${(@P)${@[-1]}}" }
file=$1; shift; words=("$@"); CURRENT=$#
whole() { source $file }
whole
"""
    return said("zsh", "-f", "-c", script, "zsh", ZSH[program], program, *words).splitlines()


def zsh_options(program, *words):
    specs = [re.match(r"(?:\([^)]*\)|\*)(--?[\w-]+)[=+]?\[", line) for line in zsh_says(program, *words)]
    return {spec.group(1) for spec in specs if spec}


class Described(unittest.TestCase):
    def test_the_subcommands_are_those_that_this_test_knows(self):
        for program, names in PROGRAMS.items():
            row = json.loads(asked(program, "", "--describe"))
            self.assertEqual([each["name"] for each in row["subcommands"]], list(names))

    def test_as_help_shows_it(self):
        for program, name in COMMANDS:
            with self.subTest(f"{program} {name}"):
                row = json.loads(asked(program, name, "--describe"))
                shown = helped(program, name)
                self.assertGreaterEqual(shown, {"-h", "--help"})
                self.assertEqual({option for each in row["options"] for option in each["names"]}, shown)
                self.assertNotIn("--describe", asked(program, name, "--help"))

    def test_values(self):
        rows = {}
        for program, name in COMMANDS:
            row = json.loads(asked(program, name, "--describe"))
            rows[program, name] = {each["names"][-1]: each for each in row["options"]} | {each["name"]: each for each in row["positionals"]}
        analyze = rows["nimble-analyze", ""]
        self.assertEqual((analyze["--max-streams"]["takes"], analyze["--max-streams"]["limits"]), ("UINT", "1 - 1024"))
        self.assertEqual((analyze["--output"]["takes"], analyze["--output"]["fallback"]), ("FILE", "schedule.json"))
        self.assertEqual((analyze["--why"]["count"], analyze["--quiet"]["count"], analyze["--rules"]["count"]), (2, 0, 1))
        self.assertEqual((analyze["--rules"]["repeatable"], analyze["--output"]["repeatable"]), (True, False))
        self.assertEqual(set(analyze["--policy"]["words"]), POLICIES)
        self.assertEqual(rows["nimble-replay", ""]["bundle"]["takes"], "DIR")
        self.assertEqual(rows["nimble", "run"]["--tune"]["words"], ["off", "start", "always"])
        self.assertEqual(rows["nimble", "run"]["--coverage"]["words"], ["on", "off"])


class ManPages(unittest.TestCase):
    def test_have_the_options_that_help_shows_and_no_others(self):
        for program, names in PROGRAMS.items():
            with self.subTest(program):
                every = set().union(*(helped(program, name) for name in ("", *names)))
                self.assertEqual(man_options(read(MAN[program])), every)

    def test_have_them_in_the_section_of_the_subcommand(self):
        for program, name in COMMANDS:
            if program == "nimble":
                continue  # its page is of the table of options: options_test.py
            with self.subTest(f"{program} {name}"):
                title = "SUBCOMMAND " + name.upper().replace("-", "\\-") if name else "OPTIONS"
                section = read(MAN[program]).split(f".SH {title}\n")[1].split("\n.SH ")[0]
                self.assertEqual(man_options(section), helped(program, name))
                self.assertIn("xit status", asked(program, name, "--help"))
                self.assertIn("\nExit status: 0 " if name else "\n.SH EXIT STATUS\n0 ", read(MAN[program]))

    def test_name_the_version(self):
        version = asked("nimble-analyze", "", "--version").split()[-1]
        for page in MAN.values():
            self.assertIn(f'1 "" "nimble {version}"', read(page).split("\n")[0])

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_are_as_roff_wants_them(self):
        for page in MAN.values():
            done = run("groff", "-man", "-Tutf8", "-ww", "-z", page)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    @unittest.skipUnless(shutil.which("man"), "there is no man")
    def test_are_as_man_wants_them(self):
        for page in MAN.values():
            done = run("man", "--warnings", "-l", page, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            self.assertIn("SEE ALSO", done.stdout)


class Completions:
    """What a shell offers: its class says how to ask."""
    folder = os.path.join(SHARE, "man")  # holds a folder, man1, and nothing else

    def test_the_options_that_help_shows_and_no_others(self):
        for program, name in COMMANDS:
            with self.subTest(f"{program} {name}"):
                self.assertEqual(self.options(program, *filter(None, [name])), helped(program, name))

    def test_a_part_of_an_option(self):
        self.assertEqual(self.completes("nimble-analyze", "--po"), {"--policy"})

    def test_words_of_an_option(self):
        self.assertEqual(self.completes("nimble-analyze", "--policy", ""), POLICIES)
        self.assertEqual(self.completes("nimble-analyze", "kernels", "--trust", "pro"), {"proven"})
        self.assertEqual(self.completes("nimble", "run", "--tune", ""), {"off", "start", "always"})
        self.assertEqual(self.completes("nimble-replay", "b", "--policy", "a"), {"all"})

    def test_subcommands_come_first_alone(self):
        self.assertEqual(self.completes("nimble-analyze", "wh"), {"why-slow"})
        self.assertEqual(self.completes("nimble", "c"), {"check"})
        self.assertEqual(self.completes("nimble-analyze", "trace.json", "wh", folder=self.folder), set())

    def test_files_and_folders(self):
        for words in (("nimble-analyze", "--json", "ma"), ("nimble-analyze", "why-slow", "ma"), ("nimble-replay", "ma"), ("nimble", "check", "ma"),
                      ("nimble-analyze", "--why", "1", "2", "ma")):
            with self.subTest(words):
                self.assertEqual({name.rstrip("/") for name in self.completes(*words, folder=self.folder)}, {"man1"})
        self.assertEqual(self.completes("nimble-replay", "nim", folder=os.path.join(self.folder, "man1")), set())
        self.assertEqual(self.completes("nimble-analyze", "--max-streams", "ma", folder=self.folder), set())

    def test_the_program_that_is_run(self):
        self.assertIn("python3", self.completes("nimble", "run", "--", "pyth"))
        self.assertIn("python3", self.completes("nimble", "run", "--mode", "replay", "pyth"))
        self.assertNotIn("--mode", self.completes("nimble", "run", "--", "true", "--mo"))
        self.assertNotIn("--mode", self.completes("nimble", "run", "true", "--mo"))
        self.assertEqual(self.completes("nimble", "run", "--log", "off", "--mo"), {"--mode"})


class Bash(Completions, unittest.TestCase):
    completes = staticmethod(bash_completes)
    options = staticmethod(lambda program, *words: bash_completes(program, *words, "-"))

    def test_after_an_equals_sign(self):
        # As bash splits it.
        self.assertEqual(bash_completes("nimble-analyze", "--policy", "="), POLICIES)
        self.assertEqual(bash_completes("nimble-analyze", "--policy", "=", "gre"), {"greedy"})
        self.assertEqual(bash_completes("nimble-analyze", "--policy", "=", "cost", "--po"), {"--policy"})

    def test_an_option_of_two_values(self):
        self.assertEqual(bash_completes("nimble-analyze", "--why", "1", "ma", folder=self.folder), set())

    @unittest.skipUnless(os.path.exists(BASH_COMPLETION), "there is no bash-completion")
    def test_the_program_s_own_completion(self):
        setup = f"source {BASH_COMPLETION}; source {BASH['nimble-analyze']};"
        for words in (("run", "--", "nimble-analyze", "--po"), ("run", "--mode", "off", "nimble-analyze", "--po")):
            self.assertEqual(bash_completes("nimble", *words, setup=setup), {"--policy"})


@unittest.skipUnless(shutil.which("fish"), "there is no fish")
class Fish(Completions, unittest.TestCase):
    completes = staticmethod(fish_completes)
    options = staticmethod(lambda program, *words: {option for begin in ("-", "--") for option in fish_completes(program, *words, begin)})

    def test_no_error_of_syntax(self):
        for path in FISH.values():
            said("fish", "--no-config", "-n", path)


@unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
class Zsh(unittest.TestCase):
    def test_no_error_of_syntax(self):
        for path in ZSH.values():
            said("zsh", "-f", "-n", path)

    def test_the_options_that_help_shows_and_no_others(self):
        for program, name in COMMANDS:
            with self.subTest(f"{program} {name}"):
                self.assertEqual(zsh_options(program, *filter(None, [name]), "-"), helped(program, name))

    def test_subcommands_come_first_alone(self):
        listed = zsh_says("nimble-analyze", "")
        self.assertEqual([line.split(":")[0] for line in listed[1:listed.index("arguments")]], list(PROGRAMS["nimble-analyze"]))
        self.assertNotIn("describe", zsh_says("nimble-analyze", "trace.json", ""))

    def test_values(self):
        said_of = zsh_says("nimble-analyze", "-")
        for part in (r"\(-o --output\)--output=\[.*\]:FILE:_files", r"--policy=\[.*\]:WORD:\(cost .*\)", r"--why\[.*\]:N: :N: ", r"\*--rules=\[.*",
                     r":trace:_files"):
            self.assertTrue(any(re.search(part + "$", line) for line in said_of), part)
        self.assertIn("*::arguments:_normal", zsh_says("nimble", "run", ""))
        self.assertEqual(zsh_says("nimble", "run", "--", "ls", "-"), ["normal", "2", "ls", "-"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
