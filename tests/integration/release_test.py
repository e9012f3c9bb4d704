#!/usr/bin/env python3
"""scripts/release: what it makes, that it makes the same twice, and that it can be used where it is unpacked. Run by ctest."""

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT, BUILD = map(pathlib.Path, sys.argv[1:3])
NEEDED = ("dpkg-deb", "dpkg-shlibdeps", "pkg-config")
CAN_WHEEL = "import setuptools, pip"
PROGRAM = """
#include <nimble/nimble.h>
#include <stdio.h>
int main(void) { puts(nimble_version(0, 0) != NIMBLE_NOT_LOADED ? "loaded" : "not loaded"); return 0; }
"""


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=300, **options)


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "PYTHON": sys.executable}
        for name in ("one", "two"):
            run(ROOT / "scripts/release", "--no-build", "--build", BUILD, "--out", cls.path / name, env=environment)
        cls.out = cls.path / "one"
        for package in cls.out.glob("*.deb"):
            run("dpkg-deb", "-x", package, cls.path / "root")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_has_each_kind_and_its_sums(self):
        names = sorted(file.name for file in self.out.iterdir())
        for end in (".tar.gz", "_amd64.deb", "_all.deb", ".whl", ".spdx.json", "NOTES.md", "SHA256SUMS"):
            self.assertEqual(sum(name.endswith(end) for name in names), 1, (end, names))
        sums = dict(reversed(line.split()) for line in (self.out / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sorted(sums), [name for name in names if name != "SHA256SUMS"])
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((self.out / name).read_bytes()).hexdigest(), digest, name)

    def test_the_same_twice(self):
        self.assertEqual((self.out / "SHA256SUMS").read_text(), (self.path / "two" / "SHA256SUMS").read_text())

    def test_what_is_unpacked_runs(self):
        with tarfile.open(next(self.out.glob("*.tar.gz"))) as archive:
            archive.extractall(self.path / "tar")
        (unpacked,) = (self.path / "tar").iterdir()
        for prefix in (self.path / "root/usr", unpacked):
            said = run(prefix / "bin/nimble", "--version").stdout
            self.assertIn(f"{prefix}/lib/libnimble.so", said)
            self.assertIn("nimble-analyze ", run(prefix / "bin/nimble-analyze", "--version").stdout)
            for name in ("nimble", "nimble-analyze", "nimble-replay"):
                self.assertTrue((prefix / "share/bash-completion/completions" / name).is_file())
                self.assertTrue((prefix / f"share/fish/vendor_completions.d/{name}.fish").is_file())
            self.assertTrue((prefix / "share/nimble/python/nimble/__init__.py").is_file())

    def test_debian_gets_man_pages_and_zsh_what_it_looks_for(self):
        share, pages = self.path / "root/usr/share", BUILD / "share/man/man1"
        for name in ("nimble", "nimble-analyze", "nimble-replay"):
            self.assertEqual(gzip.decompress((share / f"man/man1/{name}.1.gz").read_bytes()), (pages / f"{name}.1").read_bytes())
            self.assertFalse((share / f"man/man1/{name}.1").exists())
            self.assertTrue((share / f"zsh/vendor-completions/_{name}").is_file())
        self.assertFalse((share / "zsh/site-functions").exists())
        with tarfile.open(next(self.out.glob("*.tar.gz"))) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertLessEqual({"share/man/man1/nimble-replay.1", "share/zsh/site-functions/_nimble-replay"}, names)

    def test_the_c_api_is_found_by_pkg_config_and_by_cmake(self):
        prefix = self.path / "root/usr"
        source = self.path / "program.c"
        source.write_text(PROGRAM)
        flags = run("pkg-config", "--cflags", "--libs", "nimble",
                    env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).stdout.split()
        run("cc", source, "-o", self.path / "program", *flags)
        self.assertEqual(run(self.path / "program").stdout, "not loaded\n")
        project = self.path / "project"
        project.mkdir()
        shutil.copy(source, project)
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nfind_package(nimble 0.1 REQUIRED)\n"
            "add_executable(program program.c)\ntarget_link_libraries(program PRIVATE nimble::api)\n")
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", project / "build")
        self.assertEqual(run(project / "build/program").stdout, "not loaded\n")

    def test_the_bill_of_materials_names_what_is_linked_in(self):
        bill = json.loads(next(self.out.glob("*.spdx.json")).read_text())
        names = {package["name"] for package in bill["packages"]}
        self.assertLessEqual({"nimble-cuda", "Zstandard", "LZ4", "fmt", "D3"}, names)
        self.assertTrue(all(package["versionInfo"] and package["licenseDeclared"] for package in bill["packages"]))
        # All packages that scripts/setup installs for the product, but for what tests alone link.
        setup = (ROOT / "scripts/setup").read_text()
        listed = setup[setup.index("libraries=("):].split(")")[0].replace("libraries=(", "").split()
        tests_alone = {"libgtest-dev", "libgmock-dev", "libbenchmark-dev"}
        self.assertEqual({f"SPDXRef-{each}" for each in listed if each not in tests_alone},
                         {package["SPDXID"] for package in bill["packages"]} - {"SPDXRef-nimble-cuda"})

    def test_it_refuses_a_folder_that_is_not_empty(self):
        done = subprocess.run([ROOT / "scripts/release", "--no-build", "--build", BUILD, "--out", self.out],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty", done.stderr)


if __name__ == "__main__":
    lacking = [tool for tool in NEEDED if shutil.which(tool) is None]
    if lacking or subprocess.run([sys.executable, "-c", CAN_WHEEL], capture_output=True, check=False).returncode != 0:
        print(f"left out: no {', '.join(lacking) or 'pip or setuptools'} here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
